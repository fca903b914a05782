"""Tries, from inside a stack's network, what its brokers must refuse: orders on stdin, on stdout what was let by.

Runs in a container of the control plane's image, as `python -c`: it may import our libraries, and nothing of tests.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from libs.contracts import flow

NATS = ("nats", 4222)
VALKEY = ("valkey", 6379)
TIMEOUT_S = 10.0
REFUSALS = ("permission", "auth", "not allowed")
FOREIGN_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("FLUSHALL",), ("CONFIG", "GET", "*"), ("EVAL", "return 1", "0"), ("KEYS", "*"), ("SET", "other", "1"),
    ("GET", "other"), ("ACL", "LIST"), ("DEBUG", "SLEEP", "0"), ("SCRIPT", "LOAD", "return 1"), ("CLIENT", "LIST"),
    ("SUBSCRIBE", "x"), ("REPLICAOF", "NO", "ONE"), ("MODULE", "LIST"), ("SAVE",), ("FUNCTION", "FLUSH"),
)  # fmt: skip


def covers(pattern: str, subject: str) -> bool:
    """Whether a pattern of permissions matches all that `subject`, itself perhaps a pattern, stands for."""
    asked = subject.split(".")
    for index, token in enumerate(pattern.split(".")):
        if token == ">":
            return index < len(asked)
        if index >= len(asked) or (token != asked[index] and (token != "*" or asked[index] == ">")):
            return False
    return len(pattern.split(".")) == len(asked)


def foreign(own: Sequence[str], all_of_them: set[str]) -> list[str]:
    """Those that no pattern of one's own covers."""
    return sorted(subject for subject in all_of_them if not any(covers(pattern, subject) for pattern in own))


async def ask_nats(connect: dict[str, Any], lines: Sequence[str] = ()) -> list[str]:
    """What the server says against the connection, then against each of these protocol lines; "" is nothing."""
    reader, writer = await asyncio.open_connection(*NATS)
    try:
        await reader.readline()
        objections = list[str]()
        for line in (f"CONNECT {json.dumps({'verbose': False, 'pedantic': False, **connect})}\r\n", *lines):
            writer.write(f"{line}PING\r\n".encode())
            objections.append("")
            while (answer := await asyncio.wait_for(reader.readline(), TIMEOUT_S)).strip() not in (b"PONG", b""):
                if answer.startswith(b"-ERR"):
                    objections[-1] += answer.decode().strip()
        return objections
    finally:
        writer.close()


async def let_by_nats(passwords: dict[str, str]) -> list[str]:
    """What a user may do that its permissions do not say; and connections without a user."""
    found = list[str]()
    for connect in ({}, {"user": "gateway", "pass": "wrong"}, {"user": "nobody", "pass": ""}):
        if not any(await ask_nats(connect)):
            found.append(f"nats lets in {connect}")
    everybody = [flow.permissions(user) for user in flow.PERMISSIONS]
    published = {subject for one in everybody for subject in one.publish} | {"other", "$SYS.x"}
    heard = {subject for one in everybody for subject in one.subscribe} | {">", "$SYS.>"}
    for user, password in passwords.items():
        own = flow.permissions(user)
        places = {subject.replace("*", "x").replace(">", "x") for subject in published}
        tries = {f"PUB {place} 0\r\n\r\n": f"publishes to {place}" for place in foreign(own.publish, places)}
        tries |= {f"SUB {subject} 1\r\n": f"subscribes to {subject}" for subject in foreign(own.subscribe, heard)}
        welcome, *objections = await ask_nats({"user": user, "pass": password}, tuple(tries))
        found += [f"nats refuses {user}: {welcome}"] * bool(welcome)
        found += [
            f"{user} {what}"
            for what, objection in zip(tries.values(), objections, strict=True)
            if "Permissions Violation" not in objection
        ]
    return found


def let_by_valkey(passwords: dict[str, str]) -> list[str]:
    """Commands that are nobody's, by each user and by none."""
    host, port = VALKEY
    found = list[str]()
    for user, password in {"": "", **passwords}.items():
        client = Redis(
            host,
            port,
            username=user or None,
            password=password or None,
            protocol=2,
            driver_info=None,
            retry=Retry(NoBackoff(), 0),
        )
        for command in FOREIGN_COMMANDS:
            try:
                client.execute_command(*command)  # type: ignore[no-untyped-call]
            except RedisError as error:
                if not any(word in str(error).lower() for word in REFUSALS):
                    found.append(f"valkey answers {user or 'nobody'} {command}: {error}")
            else:
                found.append(f"valkey does {command} for {user or 'nobody'}")
    return found


if __name__ == "__main__":
    orders = json.load(sys.stdin)
    json.dump(asyncio.run(let_by_nats(orders["nats"])) + let_by_valkey(orders["index"]), sys.stdout)
