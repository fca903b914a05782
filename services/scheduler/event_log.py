"""Every event with its time and every decision: the last events in memory, all of it in a file where one is named.

The core is a pure function of the events; `replay.py` makes the same decisions again. A file has a line of JSON for the
run's beginning, then two for a turn: what came in, before anything is decided, and what was decided, if anything was.
Nothing is buffered: after a crash the file ends with the events that led to it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, get_args

import msgspec

from libs.contracts.errors import ConfigError
from libs.contracts.messages import ControlMessage
from libs.runtime.logs import get_logger
from services.scheduler.choice import Noted
from services.scheduler.decision_words import Decision, decision_of
from services.scheduler.events import Asked, Command, Event
from services.scheduler.state import Policy, State

TURNS_KEPT = 1024

_KINDS = {kind.__name__: kind for kind in (*get_args(Event), *get_args(ControlMessage))}

logger = get_logger("scheduler")


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


class _Line(msgspec.Struct, omit_defaults=True):
    """Either a turn or, with a digest, what was decided in it."""

    now_s: float = 0.0
    events: list[_Entry] = []
    digest: str = ""
    words: list[str] = []


class EventLog:
    """`last` are the newest turns of a run; `file` gets all of them, and what was decided in them."""

    def __init__(self, policy: Policy, term: int, file: IO[bytes] | None = None) -> None:
        self.last: deque[Turn] = deque(maxlen=TURNS_KEPT)
        self._file = file
        self._write(_Head(policy, term))

    def append(self, now_s: float, events: tuple[Event, ...]) -> None:
        self.last.append(Turn(now_s, events))
        if self._file is not None:
            self._write(_Line(now_s, [_Entry.of(event) for event in events]))

    def decided(self, commands: Sequence[Command], journal: Sequence[Noted]) -> None:
        """What came of the turn appended last."""
        if self._file is not None and (decision := decision_of(commands, journal)) is not None:
            self._write(_Line(digest=decision.digest, words=list(decision.words)))

    def _write(self, line: msgspec.Struct) -> None:
        """A full disk ends the log, not the service."""
        if self._file is not None:
            try:
                self._file.write(msgspec.json.encode(line) + b"\n")
            except OSError as error:
                self._file = None
                logger.warning("event_log_ends", reason=str(error))


@contextmanager
def open_log(policy: Policy, term: int, path: str) -> Iterator[EventLog]:
    """A log of the reign that begins now, in a file of its own; "" is no file."""
    if not path:
        yield EventLog(policy, term)
        return
    with log_path(path, term).open("wb", buffering=0) as file:
        yield EventLog(policy, term, file)


def log_path(path: str, term: int) -> Path:
    """events.jsonl is events.3.jsonl in term 3: no reign writes over what an earlier one has written."""
    named = Path(path)
    return named.with_name(f"{named.stem}.{term}{named.suffix}")


def read_log(lines: Iterable[bytes]) -> tuple[State, Iterator[tuple[Turn, Decision | None]]]:
    """The state in which a logged run began, and its turns with what was decided in each. Raises ConfigError.

    A last line that was cut off, as when its writer was killed, is left out.
    """
    left = iter(lines)
    try:
        begun = msgspec.json.decode(next(left, b""), type=_Head)
    except msgspec.DecodeError as error:
        raise ConfigError(f"this is no event log: {error}") from error
    return State(begun.policy, begun.term), _turns(left)


def _turns(lines: Iterator[bytes]) -> Iterator[tuple[Turn, Decision | None]]:
    taken: Turn | None = None
    for line in lines:
        try:
            parsed = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            if line.endswith(b"\n"):
                raise ConfigError(f"a line of the event log cannot be read: {error}") from error
            break
        if parsed.digest and taken is not None:
            yield taken, Decision(parsed.digest, tuple(parsed.words))
            taken = None
            continue
        if taken is not None:
            yield taken, None
        taken = Turn(parsed.now_s, tuple(entry.event() for entry in parsed.events))
    if taken is not None:
        yield taken, None
