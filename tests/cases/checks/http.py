"""Cases of HTTP itself: bodies, routes, headers, connections."""

import asyncio

from tests.cases.client import spoken
from tests.cases.play import Play
from tests.cases.stage import ORIGIN

SOON_S = 2.0


async def b134(play: Play) -> None:
    """Another model is not found, whatever it is called."""
    _, empty, missing, listed = await play.play()
    assert empty.status in (400, 404) and missing.error["code"] == "model_not_found"
    assert [model["id"] for model in listed.json["data"]] == [play.stage.names["MODEL"]]


async def b155(play: Play) -> None:
    """What is no JSON, or of the wrong types, is a 400 in an envelope."""
    await play.play()


async def b156(play: Play) -> None:
    """A wrong type of content, route or method has an envelope, too."""
    replies = await play.play()
    assert {reply.status for reply in replies[:3]} <= {400, 415}


async def b158(play: Play) -> None:
    """Fields that nobody knows are ignored; tools are refused by name until they are served."""
    ignored = await play.send(0)
    plain = await play.send(0, without=("foo", "service_tier", "store", "metadata", "user"))
    assert ignored.status == 200 and ignored.text == plain.text
    assert (await play.send(1)).error["param"] == "tools"


async def b160(play: Play) -> None:
    """A page that may ask is told so without a key; what it asks for still needs one."""
    preflight, unkeyed, keyed = await play.play()
    assert preflight.status in (200, 204)
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    assert (unkeyed.status, keyed.status) == (401, 200)
    assert keyed.headers["access-control-allow-origin"] == ORIGIN
    assert not any("credentials" in name for reply in (preflight, keyed) for name in reply.headers)
    stranger = await play.stage.client.send({**play.requests[2], "headers": {"Origin": "http://elsewhere.example"}})
    assert "access-control-allow-origin" not in stranger.headers


async def b162(play: Play) -> None:
    """A stream that cannot be is refused before it begins."""
    for reply in await play.play():
        assert reply.headers["content-type"] == "application/json" and reply.took_s < SOON_S


async def b163(play: Play) -> None:
    """The death of a worker breaks no stream, and a whole one ends by [DONE]."""
    long, short = play.requests
    asked = [asyncio.create_task(play.stage.complete(_as_prompt(one["body"]))) for one in (long, short)]
    await asyncio.sleep(0.05)
    play.stage.stack.processes("decode_worker")[0].kill()
    for reply in await asyncio.gather(*asked):
        reply.check()
        assert reply.is_done or "error" in reply.events[-1]


def _as_prompt(body: dict[str, object]) -> dict[str, object]:
    """This stage's model has no template."""
    return {"prompt": "Go", **{name: value for name, value in body.items() if name not in ("messages", "model")}}


async def b164(play: Play) -> None:
    """Who sends slowly holds up nobody; who sends a tenth of its body is answered, and long answers are whole."""
    slow = [asyncio.create_task(spoken(play.stage.origin, b"G", within_s=1.0)) for _ in range(200)]
    await asyncio.sleep(0.1)
    assert (await play.stage.complete({"prompt": "Hi", "max_tokens": 2})).status == 200
    await asyncio.gather(*slow)
    (long,) = await play.play()
    assert long.tokens == 1500


async def b166(play: Play) -> None:
    """Two requests under one name of their clients' are two."""
    stage = play.stage
    body = {"max_tokens": 200, "ignore_eos": True, "temperature": 0, "stream": True, "request_id": "same"}

    def asking(prompt: str) -> dict[str, object]:
        whole = {"model": stage.names["MODEL"], "prompt": prompt, **body}
        headers = {"X-Request-Id": "same"}
        return {"method": "POST", "path": "/v1/completions", "body": whole, "headers": headers}

    alone = [await stage.client.send(asking(prompt)) for prompt in ("A", "B")]
    together = await asyncio.gather(*(stage.client.send(asking(prompt)) for prompt in ("A", "B")))
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    assert all((reply.headers["x-request-id"], reply.reason) == ("same", "length") for reply in together)
    assert len({event["id"] for reply in together for event in reply.events}) == 2, "it is only echoed"
    _, second = await asyncio.gather(stage.client.send(asking("A"), leave_after=3), stage.client.send(asking("B")))
    second.check()
    assert second.text == alone[1].text and second.reason == "length"
