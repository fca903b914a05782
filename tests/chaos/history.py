"""What clients saw: one Operation per request, from its invocation to its one end, as a file that can be read again.

`ok` is an answer that came to its end, `fail` one that the server refused or broke off with an error, `info` one whose
connection ended without a word: what became of it is not known.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec

from libs.contracts.messages import SamplingParams

Outcome = Literal["", "ok", "fail", "info"]


class Part(msgspec.Struct, frozen=True):
    """One event of a stream, at this time."""

    at_s: float
    ids: tuple[int, ...]
    text: str
    choice: int = 0


class Operation(msgspec.Struct):
    """One request of one client. Times are of the client's monotonic clock."""

    number: int
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    stop: tuple[str, ...] = ()
    choices: int = 1
    invoked_s: float = 0.0
    ended_s: float = 0.0
    request_id: str = ""
    parts: list[Part] = []
    outcome: Outcome = ""
    endings: int = 0  # how often it came to an end: once, in a sound history
    finish_reasons: dict[int, str] = {}  # by choice
    usage: dict[str, Any] | None = None
    status: int = 0
    error: str = ""  # what a client was told, or what became of the connection

    @property
    def finish_reason(self) -> str:
        return self.finish_reasons.get(0, "")

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token for part in self.parts for token in part.ids)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def longest_stall_s(self) -> float:
        """The longest wait for news of this stream, the wait for the first included."""
        times = [self.invoked_s, *(part.at_s for part in self.parts), self.ended_s]
        return max(after - before for before, after in pairwise(times))

    def choice(self, index: int) -> "Operation":
        """One of its choices as a request of its own, which it equals with seed + index."""
        if self.choices == 1:
            return self
        alone = msgspec.structs.replace(
            self,
            choices=1,
            params=replace(self.params, seed=(self.params.seed + index) % (1 << 64)),
            parts=[part for part in self.parts if part.choice == index],
            finish_reasons={0: self.finish_reasons.get(index, "")},
        )
        if self.usage is not None:
            others = sum(len(part.ids) for part in self.parts if part.choice != index)
            alone.usage = {**self.usage, "completion_tokens": self.usage.get("completion_tokens", 0) - others}
        return alone

    def end(self, outcome: Outcome, now_s: float, error: str = "") -> None:
        """Only the first end counts; a second one is a fault that the checker finds."""
        self.endings += 1
        if self.endings == 1:
            self.outcome, self.ended_s, self.error = outcome, now_s, error


class Planted(msgspec.Struct, frozen=True):
    """A fault and when it struck."""

    at_s: float
    what: str


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """A stack with nothing to do any more."""

    blocks: dict[str, int] = {}  # total, free, cached, held, freeing
    waiting: int = 0
    running: int = 0
    queued: dict[str, int] = {}  # JetStream stream → messages stored, delivered or not
    strangers: tuple[str, ...] = ()  # processes of this stack that its supervisor does not know
    shared_files: tuple[str, ...] = ()  # in /dev/shm
    corruptions: tuple[str, ...] = ()  # what workers found wrong in the pool
    violations: tuple[str, ...] = ()  # logged by a service: reports of a position differ, a handler failed
    root_spans: dict[str, int] | None = None  # request → root spans seen; None: not recorded


class History(msgspec.Struct):
    """One run: what clients did, what struck them, and what was left."""

    name: str
    operations: list[Operation] = []
    planted: list[Planted] = []
    quiet: Quiet | None = None
    noticed_s: float = 0.0  # when a service said that it noticed the first fault; 0: nobody had to
    rested_s: float = 0.0  # when it came to rest
    tokens_recomputed: int = 0
    may_fail: bool = False  # the fault was one that clients may see: their own gateway's

    def invoke(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        now_s: float,
        stop: Sequence[str] = (),
        choices: int = 1,
    ) -> Operation:
        operation = Operation(len(self.operations), tuple(prompt_ids), params, tuple(stop), choices, now_s)
        self.operations.append(operation)
        return operation

    def plant(self, what: str, now_s: float) -> None:
        self.planted.append(Planted(now_s, what))

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name.replace('/', '_')}.json"
        path.write_bytes(msgspec.json.encode(self))
        return path


def load(path: Path) -> History:
    return msgspec.json.decode(path.read_bytes(), type=History)


class Answer(msgspec.Struct, frozen=True):
    """What an undisturbed run gives."""

    ids: tuple[int, ...]
    finish_reason: str
    text: str


Oracle = Callable[[Operation], Answer]
