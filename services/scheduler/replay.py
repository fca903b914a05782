"""Decides a logged run again, without workers, and compares every decision with what was decided then."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from libs.contracts.messages import StepResult
from services.scheduler.decision_words import Decision, decision_of
from services.scheduler.event_log import Turn, read_log
from services.scheduler.plan import turn
from services.scheduler.state import State


@dataclass(frozen=True, slots=True)
class Difference:
    """The first turn, counted from 1, in which something else is decided than was decided then."""

    turn: int
    now_s: float
    logged: tuple[str, ...]
    again: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was compared; `difference` ends it."""

    term: int
    turns: int
    steps: int  # reported by workers
    decisions: int
    seconds: float  # of the run, from its first turn to the last one compared
    difference: Difference | None


def replay(lines: Iterable[bytes]) -> Replayed:
    """Run the core over a log's events. Raises ConfigError for what is no event log."""
    state, turns = read_log(lines)
    count = steps = decisions = 0
    begun_s = now_s = 0.0
    difference = None
    for taken, logged, is_last in _with_last(turns):
        count, now_s = count + 1, taken.now_s
        begun_s = begun_s or now_s
        steps += sum(isinstance(event, StepResult) for event in taken.events)
        decisions += logged is not None
        difference = _compare(state, taken, logged, count, is_last=is_last)
        if difference is not None:
            break
    return Replayed(state.term, count, steps, decisions, now_s - begun_s, difference)


def _with_last(turns: Iterator[tuple[Turn, Decision | None]]) -> Iterator[tuple[Turn, Decision | None, bool]]:
    """Each turn, and whether it is the last one."""
    held = next(turns, None)
    while held is not None:
        following = next(turns, None)
        yield *held, following is None
        held = following


def _compare(state: State, taken: Turn, logged: Decision | None, number: int, *, is_last: bool) -> Difference | None:
    """A run that was killed may have decided something in its last turn and not written it."""
    try:
        again = decision_of(turn(state, taken.events, taken.now_s), state.take_journal())
    except Exception as error:  # what a changed policy does to a state may raise anything; that differs, too
        return Difference(number, taken.now_s, _words(logged), (f"raises {error!r}",))
    if _digest(again) == _digest(logged) or (is_last and logged is None):
        return None
    return Difference(number, taken.now_s, _words(logged), _words(again))


def _digest(decision: Decision | None) -> str:
    return "" if decision is None else decision.digest


def _words(decision: Decision | None) -> tuple[str, ...]:
    return () if decision is None else decision.words
