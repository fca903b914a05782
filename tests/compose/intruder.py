"""Tries, from inside a stack's network, what its brokers must refuse: orders on stdin, on stdout what was let by.

Runs in a container of the control plane's image, as `python -c`: it may import our libraries, and nothing of tests.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from libs.contracts import flow

NATS = ("nats", 4222)
VALKEY = ("valkey", 6379)
TIMEOUT_S = 10.0
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


async def ask_nats(connect: dict[str, Any], lines: Sequence[str]) -> list[str]:
    """Errors that the server sends for these protocol lines, each followed by the answer to a ping."""
    reader, writer = await asyncio.open_connection(*NATS)
    try:
        await reader.readline()
        errors = list[str]()
        for line in (f"CONNECT {json.dumps({'verbose': False, 'pedantic': False, **connect})}\r\n", *lines):
            writer.write(f"{line}PING\r\n".encode())
            while (answer := await asyncio.wait_for(reader.readline(), TIMEOUT_S)).strip() not in (b"PONG", b""):
                errors += [answer.decode().strip()] * answer.startswith(b"-ERR")
        return errors
    finally:
        writer.close()


async def let_by_nats(passwords: dict[str, str]) -> list[str]:
    """What a user may do that its permissions do not say; and connections without a user."""
    found = list[str]()
    for connect in ({}, {"user": "gateway", "pass": "wrong"}, {"user": "nobody", "pass": ""}):
        if not await ask_nats(connect, ()):
            found.append(f"nats lets in {connect}")
    published = {subject for user in flow.PERMISSIONS for subject in flow.permissions(user).publish} | {
        "other",
        "$SYS.x",
    }
    heard = {subject for user in flow.PERMISSIONS for subject in flow.permissions(user).subscribe} | {">", "$SYS.>"}
    for user, password in passwords.items():
        own = flow.permissions(user)
        me = {"user": user, "pass": password}
        if errors := await ask_nats(me, ()):
            found.append(f"nats refuses {user}: {errors}")
        for subject in foreign(own.publish, published):
            plain = subject.replace("*", "x").replace(">", "x")
            if not foreign(own.publish, {plain}):
                continue  # a place in a foreign pattern that one's own reaches
            if not any("Permissions Violation" in error for error in await ask_nats(me, (f"PUB {plain} 0\r\n\r\n",))):
                found.append(f"{user} publishes to {plain}")
        for subject in foreign(own.subscribe, heard):
            if not any("Permissions Violation" in error for error in await ask_nats(me, (f"SUB {subject} 1\r\n",))):
                found.append(f"{user} subscribes to {subject}")
    return found


def let_by_valkey(passwords: dict[str, str]) -> list[str]:
    """Commands that are nobody's, by each user and by none."""
    host, port = VALKEY
    found = list[str]()
    for user, password in {"": "", **passwords}.items():
        client = Redis(host, port, username=user or None, password=password or None, protocol=2, driver_info=None)
        for command in FOREIGN_COMMANDS:
            try:
                client.execute_command(*command)  # type: ignore[no-untyped-call]
            except RedisError as error:
                if "permission" in str(error).lower() or "auth" in str(error).lower():
                    continue
                found.append(f"valkey answers {user or 'nobody'} {command}: {error}")
            else:
                found.append(f"valkey does {command} for {user or 'nobody'}")
    return found


if __name__ == "__main__":
    orders = json.load(sys.stdin)
    json.dump(asyncio.run(let_by_nats(orders["nats"])) + let_by_valkey(orders["index"]), sys.stdout)
