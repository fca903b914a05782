"""Steps in the trace ring: runs of alike ones, closed when something changes or time has passed."""

from dataclasses import replace

from libs.contracts.messages import Resident, RowResult, RowWait, StepResult
from libs.contracts.trace_records import Joined, Left, Steps, Waited
from libs.engine.worker.residences import Residences
from libs.engine.worker.step_records import LONGEST_NS
from libs.engine.worker.step_values import StepReport
from libs.runtime.ring import Ring
from tests.unit.worker.orders import prompt, resident

A, B = (replace(resident(number, prompt(2), [0]), request_id=name) for number, name in ((1, "a"), (2, "b")))


def report(number: int, *rows: tuple[Resident, int, bool], batch: int = 0, at_ns: int = 0, end: str = "") -> StepReport:
    """Rows as (resident, cursor after it, whether it drew a token)."""
    results = tuple(
        RowResult(guest.sequence, 1, cursor, 0, (7,) if drew else (), (), end, False) for guest, cursor, drew in rows
    )
    at_ns = at_ns or number * 100
    result = StepResult("ab", 1, 1, number, results, (), (), 0, batch or len(rows), at_ns, at_ns + 50)
    return StepReport(result, tuple(guest for guest, _, _ in rows))


def stays() -> tuple[Residences, Ring]:
    ring = Ring(lambda: None)
    return Residences("stay", ring), ring


def test_alike_steps_are_one_record_until_a_row_comes_or_goes() -> None:
    """Numbers are counted on from the first; times are in turn."""
    noted, ring = stays()
    noted.begin([A, B], at_ns=5)
    for number in (1, 2, 3):
        noted.note(report(number, (A, 1 + number, True)))
    noted.note(report(4, (A, 5, True), (B, 2, True)))
    noted.end([A, B], at_ns=900)

    records = [record for record in ring.take() if isinstance(record, Steps)]

    assert records == [
        Steps(1, ("a",), (1,), (1,), [100, 150, 200, 250, 300, 350]),
        Steps(4, ("a", "b"), (1, 1), (1, 1), [400, 450]),
    ]


def test_a_chunk_is_a_record_of_its_own_with_the_tokens_of_each_row() -> None:
    """Counted from where the row stood before."""
    noted, ring = stays()
    noted.begin([A, replace(B, cursor=16)], at_ns=5)
    noted.note(report(1, (A, 32, False), (B, 17, True), batch=33))
    noted.note(report(2, (A, 40, True), (B, 18, True), batch=9))
    noted.end([A], at_ns=900)

    records = [record for record in ring.take() if isinstance(record, Steps)]

    assert [(steps.tokens, steps.sampled) for steps in records] == [((32, 1), (0, 1)), ((8, 1), (1, 1))]


def test_a_run_is_written_after_a_while() -> None:
    """A worker that is killed loses no more of its steps."""
    noted, ring = stays()
    noted.begin([A], at_ns=5)
    noted.note(report(1, (A, 2, True), at_ns=100))
    noted.note(report(2, (A, 3, True), at_ns=100 + LONGEST_NS))

    assert [record.first for record in ring.take() if isinstance(record, Steps)] == [1]


def test_an_end_closes_the_run_and_the_stay() -> None:
    """Whoever asks for a request that is over finds all its steps."""
    noted, ring = stays()
    noted.begin([A], at_ns=5)
    noted.note(report(1, (A, 2, True), end="stop"))

    joined, steps, left = ring.take()

    assert (joined, left) == (Joined("a", 1, 5, 0), Left("a", 1, 150, 1, 1))
    assert isinstance(steps, Steps)


def test_a_wait_that_is_over_ends_where_the_step_begins() -> None:
    """Its beginning alone is no record."""
    noted, ring = stays()
    noted.begin([A], at_ns=5)
    step = report(1, (A, 2, True))
    waits = (RowWait(1, 1, "out_of_grant", 0), RowWait(1, 1, "fill_behind", 30))
    noted.note(StepReport(replace(step.result, waits=waits), step.residents))

    assert [record for record in ring.take() if isinstance(record, Waited)] == [Waited("a", "fill_behind", 70, 100)]
