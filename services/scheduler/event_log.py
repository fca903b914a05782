"""Every event with its time: the last ones in memory, all of them in a file where one is named.

The core is a pure function of this log, so `replay` makes the same decisions again.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, get_args

import msgspec

from libs.contracts.messages import ControlMessage
from services.scheduler.events import Asked, Command, Event
from services.scheduler.plan import turn
from services.scheduler.state import Policy, State

TURNS_KEPT = 1024

_KINDS = {kind.__name__: kind for kind in (*get_args(Event), *get_args(ControlMessage))}


@dataclass(frozen=True, slots=True)
class Turn:
    """What was taken in together, before one decision."""

    now_s: float
    events: tuple[Event, ...]


class _Head(msgspec.Struct):
    policy: Policy
    term: int


class _Entry(msgspec.Struct, omit_defaults=True):
    """An event; Asked is written as the message it carries, with its ticket."""

    kind: str
    body: msgspec.Raw
    ticket: int | None = None

    @classmethod
    def of(cls, event: Event) -> "_Entry":
        ticket, body = (event.ticket, event.message) if isinstance(event, Asked) else (None, event)
        return cls(type(body).__name__, msgspec.Raw(msgspec.json.encode(body)), ticket)

    def event(self) -> Event:
        body = msgspec.json.decode(self.body, type=_KINDS[self.kind])
        return body if self.ticket is None else Asked(self.ticket, body)


class _Line(msgspec.Struct):
    now_s: float
    events: list[_Entry]


class EventLog:
    """`last` are the newest turns of a run; `file` gets all of them, one line of JSON each."""

    def __init__(self, policy: Policy, term: int, file: IO[bytes] | None = None) -> None:
        self.last: deque[Turn] = deque(maxlen=TURNS_KEPT)
        self._file = file
        self._write(_Head(policy, term))

    def append(self, now_s: float, events: tuple[Event, ...]) -> None:
        self.last.append(Turn(now_s, events))
        if self._file is not None:
            self._write(_Line(now_s, [_Entry.of(event) for event in events]))

    def _write(self, line: msgspec.Struct) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(line) + b"\n")


@contextmanager
def open_log(policy: Policy, term: int, path: str) -> Iterator[EventLog]:
    """A log of the run that begins now; "" is no file.

    Each turn is in the file before it is carried out, so a killed leader's is whole. A new term's file takes the place
    of an older one, into which a frozen leader may still write.
    """
    if not path:
        yield EventLog(policy, term)
        return
    Path(path).unlink(missing_ok=True)
    with Path(path).open("wb", buffering=0) as file:
        yield EventLog(policy, term, file)


def read_log(lines: Iterable[bytes]) -> tuple[State, Iterator[Turn]]:
    """The state in which a logged run began, and its turns."""
    head, *turns = lines
    begun = msgspec.json.decode(head, type=_Head)
    return State(begun.policy, begun.term), (_turn(line) for line in turns)


def replay(state: State, turns: Iterable[Turn]) -> Iterator[list[Command]]:
    """Decide again: the commands of each turn, as they were given."""
    for taken in turns:
        yield turn(state, taken.events, taken.now_s)


def _turn(line: bytes) -> Turn:
    parsed = msgspec.json.decode(line, type=_Line)
    return Turn(parsed.now_s, tuple(entry.event() for entry in parsed.events))
