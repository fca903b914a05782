"""Cases of those who mean no good."""

import asyncio
import base64
import pickle
import socket
import subprocess
from pathlib import Path

import psutil

from tests.cases.client import spoken
from tests.cases.play import Play

SOON_S = 2.0
MOST_GROWTH_BYTES = 50 << 20


def _gateway(play: Play) -> psutil.Process:
    (process,) = play.stage.stack.processes("gateway")
    return process


async def b178(play: Play) -> None:
    """Too many choices or prompts cost nothing."""
    before = _gateway(play).memory_info().rss
    replies = await play.play()
    for index in (0, 1, 2, 4):
        assert replies[index].status in (400, 413) and replies[index].took_s < SOON_S
    assert replies[3].status in (200, 400)
    assert _gateway(play).memory_info().rss - before < MOST_GROWTH_BYTES


async def b179(play: Play) -> None:
    """Heads and bodies without end are cut off, and cost no memory."""
    origin, before = play.stage.origin, _gateway(play).memory_info().rss
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    post += f"Authorization: Bearer {play.stage.names['KEY']}\r\n".encode()
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    heard = await asyncio.gather(
        spoken(origin, head + b"".join(b"X-%d: 1\r\n" % index for index in range(20_000)), within_s=SOON_S),
        spoken(origin, head + b"X: ", more=b"x" * 65_536, within_s=SOON_S),
        spoken(origin, b"GET /" + b"x" * (1 << 20), within_s=SOON_S),
        spoken(origin, post + b"Content-Length: 209715200\r\n\r\n", within_s=SOON_S),
        spoken(origin, post + b"Transfer-Encoding: chunked\r\n\r\n", more=chunk, within_s=SOON_S),
    )
    for one in heard:
        assert not one or one.startswith(b"HTTP/1.1 4"), one[:80]
    assert heard[3].startswith(b"HTTP/1.1 413")
    assert _gateway(play).memory_info().rss - before < 2 * MOST_GROWTH_BYTES


async def b180(play: Play) -> None:
    """A template is the operator's."""
    first, second, third, fourth = await play.play()
    for reply in (first, second, fourth):
        assert reply.status == 400 and reply.took_s < SOON_S
    assert third.status == 400


class _Canary:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return subprocess.call, (["touch", str(self._path)],)


async def b181(play: Play) -> None:
    """Tensors are not read from requests at all."""
    canary = play.scratch / "canary"
    pickled = base64.b64encode(pickle.dumps(_Canary(canary))).decode()
    play.names.update(B64_SPARSE_TENSOR_2E40="AAAA", B64_SPARSE_OOB_INDEX="AAAA", B64_PICKLE_CANARY=pickled)
    await play.play()
    assert not canary.exists()


async def b186(play: Play) -> None:
    """Nobody who listens loads what strangers send, and all listen on this machine alone."""
    canary = play.scratch / "canary"
    pids = {child.pid for child in play.stage.stack.state().children if child.pid}
    listening = {
        (one.laddr.ip, one.laddr.port)
        for pid in pids
        for one in psutil.Process(pid).net_connections()
        if one.status == psutil.CONN_LISTEN and one.family == socket.AF_INET
    }
    assert listening and {ip for ip, _ in listening} == {"127.0.0.1"}
    upgrade = b"GET /internal HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    messages = (pickle.dumps(_Canary(canary)), bytes(range(256)) * 256, b"GET / HTTP/1.1\r\n\r\n", upgrade)
    await asyncio.gather(
        *(spoken(f"http://{ip}:{port}", message, within_s=0.3) for ip, port in listening for message in messages)
    )
    assert not canary.exists() and {child.pid for child in play.stage.stack.state().children if child.pid} == pids
    assert all(psutil.pid_exists(pid) for pid in pids)


async def b188(play: Play) -> None:
    """Names that look like paths are names of nothing."""
    for reply in await play.play():
        assert 400 <= reply.status < 500
    outside = [await play.send(index) for index in (0, 1)]
    assert {reply.error["code"] for reply in outside} == {"model_not_found"}


async def b189(play: Play) -> None:
    """No URL of a request is opened."""
    heard = asyncio.Event()
    server = await asyncio.start_server(lambda reader, writer: heard.set(), "127.0.0.1", 0)
    async with server:
        play.names["CANARY"] = server.sockets[0].getsockname()[1]
        await play.play()
    assert not heard.is_set()


async def b190(play: Play) -> None:
    """Control tokens that are spelled out in a message are letters."""
    for request, reply in zip(play.requests, await play.play(), strict=True):
        messages = request["body"]["messages"]
        tokenized = await play.stage.client.send({**request, "path": "/tokenize"})
        plain = await play.stage.client.send(
            {
                **request,
                "path": "/tokenize",
                "body": {**request["body"], "messages": [{**m, "content": ""} for m in messages]},
            }
        )
        assert tokenized.json["count"] == reply.prompt_tokens
        for special in (0, 1, 2):
            assert tokenized.json["tokens"].count(special) == plain.json["tokens"].count(special)


async def b194(play: Play) -> None:
    """Liveness needs no key, all else does; the scheme may be in any letters, the key only as it is."""
    replies = await play.play()
    for request, reply in zip(play.requests, replies, strict=True):
        given = request.get("headers", {}).get("Authorization", "")
        is_open = request["path"] == "/health" or given == f"bearer {play.names.get('KEY', play.stage.names['KEY'])}"
        assert reply.status == (200 if is_open else 401), (request["path"], given)


async def b195(play: Play) -> None:
    """A log has one line an event, whatever a prompt holds, and the prompt is not in it."""
    await play.play()
    await play.stage.complete({"prompt": list(range(3, 259)), "max_tokens": 2})
    logs = play.stage.stack.run_dir.logs
    lines = [line for path in logs.glob("*.log") for line in path.read_bytes().splitlines()]
    assert lines and not any(b"forged" in line or b"\x1b" in line for line in lines)
