"""One case: reads it from the file, sends its requests, compares their statuses. What else must hold is in checks/."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.cases.reply import Reply
from tests.cases.stage import CALM_WITHIN_S, Stage
from tests.cases.values import expand

CASES = Path(__file__).with_name("cases.jsonl")


@cache
def read_cases() -> Mapping[str, dict[str, Any]]:
    """Every case of the file, by id."""
    return {case["id"]: case for case in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())}


@dataclass
class Play:
    """A case on its stage."""

    case: Mapping[str, Any]
    stage: Stage
    names: dict[str, Any] = field(default_factory=dict)  # beside those of the stage
    scratch: Path = Path()
    is_whole: bool = False  # what takes long is done, too
    is_alone: bool = True  # else others run on its stage, so that it is never calm meanwhile

    @property
    def requests(self) -> list[dict[str, Any]]:
        """All that the file spells out, in order, those to be sent at once and repetitions among them."""
        found: list[dict[str, Any]] = []
        for step in self.case["requests"]:
            if "repeat_previous" in step:
                found += [found[-1]] * step["repeat_previous"]
            else:
                found += [one for one in step.get("parallel", [step]) if "method" in one]
        return [expand(request, {**self.stage.names, **self.names}) for request in found]

    async def play(self) -> list[Reply]:
        """Send every request, those of a parallel step at once; each answer is whole and of the status it must have."""
        at_once = any("parallel" in step for step in self.case["requests"])
        requests = self.requests
        if at_once:
            replies = list(await asyncio.gather(*map(self.stage.client.send, requests)))
        else:
            replies = [await self.stage.client.send(request) for request in requests]
        self.check_statuses(replies)
        return replies

    def check_statuses(self, replies: list[Reply]) -> None:
        wanted = self.case["expect"].get("status")
        for index, reply in enumerate(replies):
            status = wanted[index] if isinstance(wanted, list) else wanted
            assert reply.status < 500, reply.body
            assert status is None or reply.status == status, f"#{index + 1} is {reply.status}: {reply.body[:300]!r}"
            reply.check()

    async def calm(self, within_s: float = CALM_WITHIN_S) -> None:
        """The stage's, where that can be."""
        if self.is_alone:
            await self.stage.calm(within_s)

    async def send(self, index: int, /, *, without: tuple[str, ...] = (), **changes: Any) -> Reply:
        """Request `index` of the file, once more, with its body changed."""
        request = dict(self.requests[index])
        request["body"] = {name: value for name, value in request["body"].items() if name not in without} | changes
        reply = await self.stage.client.send(request)
        reply.check()
        return reply
