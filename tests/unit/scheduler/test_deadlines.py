"""A deadline that passes ends a request wherever it is; one that cannot be kept ends it before it is begun."""

import pytest

from libs.contracts.messages import Failed
from services.scheduler.choice import Phase
from services.scheduler.fit import StepTimeFit
from services.scheduler.reasons import Reason
from services.scheduler.shedding import KNOWN_STEPS, MARGIN, least_s
from services.scheduler.state import DECODE
from services.scheduler.timeouts import next_expiry_s
from tests.unit.scheduler.cell import GATEWAY, Cell, disaggregated, hybrid, params, prompt

TIMEOUT_S = 30.0
STEP_S = 0.1


def failed(cell: Cell, request_id: str) -> str:
    """The code that its gateway was told."""
    errors = [told.error for told in cell.told if isinstance(told, Failed) and told.request_id == request_id]
    assert len(errors) == 1, cell.told
    return errors[0].code


def expire(cell: Cell, seconds: float) -> None:
    """So much time passes at once, and its gateway has been heard of just before."""
    cell.now_s += seconds - 0.01
    for worker in cell.state.workers.values():
        worker.heard_s = cell.now_s
    cell.alive()
    cell.pass_s(0.01)


def finish(cell: Cell) -> None:
    """All that is left comes to its end, and no block is held."""
    cell.run()
    for request_id, group in list(cell.state.requests.items()):
        if group.is_failed:
            cell.answer(request_id, live=True)
        else:
            cell.deliver(request_id)
    cell.run()
    assert cell.is_clean


@pytest.mark.parametrize("is_timed", [True, False])
@pytest.mark.parametrize("place", ["queue", "chunk", "hand-over", "decode"])
def test_a_deadline_that_passes_ends_a_request_wherever_it_is(place: str, is_timed: bool) -> None:
    """By a typed error that its gateway is told once, with the reason noted, and all its blocks back."""
    cell = disaggregated(max_running=1 if place == "queue" else 4, max_chunk_tokens=16)
    if place == "queue":
        cell.submit("first", prompt(20), params(4))
    cell.submit("r", prompt(40), params(20), deadline_s=TIMEOUT_S, is_timed=is_timed)
    choice = cell.choice("r")
    workers = {worker.identity.role: worker for worker in cell.workers.values()}
    if place != "queue":
        while not choice.cursor:
            cell.step(workers["prefill"])
        assert choice.phase is Phase.PREFILLING and choice.cursor == 16
    if place in ("hand-over", "decode"):
        while choice.phase is Phase.PREFILLING:
            cell.step(workers["prefill"])
        assert choice.reason is Reason.HANDED_OVER
    if place == "decode":
        cell.step(workers[DECODE])
        cell.step(workers[DECODE])
        assert choice.generated > 1

    expire(cell, TIMEOUT_S)

    assert failed(cell, "r") == "deadline_exceeded"
    assert choice.reason is Reason.DEADLINE
    finish(cell)


def test_a_deadline_passes_while_a_gateway_is_asked() -> None:
    """Its worker was lost, its gateway does not answer: it ends in time all the same."""
    cell = hybrid()
    cell.gateway_answers = False
    cell.submit("r", prompt(40), params(20), deadline_s=TIMEOUT_S)
    worker = next(iter(cell.workers.values()))
    cell.step(worker)
    cell.die(worker)
    assert cell.choice("r").phase is Phase.ASKING
    cell.asks.clear()

    expire(cell, TIMEOUT_S)

    assert failed(cell, "r") == "deadline_exceeded"
    cell.answer("r", live=True)
    assert cell.is_clean


def busy(*, steps: int = KNOWN_STEPS) -> Cell:
    """A cell that knows how long its steps take, and runs one request, as many as may."""
    cell = hybrid(max_running=1, blocks=64)
    cell.submit("first", prompt(20), params(400))
    while not cell.choice("first").generated:
        cell.step(next(iter(cell.workers.values())))
    for worker in cell.state.workers.values():
        worker.fit = StepTimeFit(reports=steps, base_s=STEP_S, per_token_s=STEP_S)
    return cell


def test_what_cannot_be_done_any_more_is_not_begun() -> None:
    """It waits as long as it could still be done if begun then, and its gateway is told when it could not."""
    cell = busy()
    cell.submit("r", prompt(50, 300), params(4), deadline_s=20.0, is_timed=True)
    choice = cell.choice("r")
    needs_s = least_s(cell.state, choice, 0)
    assert needs_s == pytest.approx(MARGIN * 51 * STEP_S)

    expire(cell, 20.0 - needs_s - 0.1)
    assert choice.is_open
    expire(cell, 0.2)

    assert failed(cell, "r") == "deadline_unreachable"
    assert choice.reason is Reason.SHED
    assert next(told.error.retryable for told in cell.told if isinstance(told, Failed))
    finish(cell)


def test_what_can_never_be_done_beside_others_is_refused_at_once() -> None:
    """The tokens that it is certain to have count as well."""
    cell = busy()
    cell.submit("r", prompt(8, 300), params(200, min_tokens=200), deadline_s=10.0, is_timed=True)

    assert failed(cell, "r") == "deadline_unreachable"


def test_a_cached_prefix_is_no_time_that_it_needs() -> None:
    """What is there, or is being computed, does not count against it."""
    cell = busy()
    known = prompt(20) + prompt(12, 900)
    cell.submit("r", known, params(4), deadline_s=2.0, is_timed=True)
    assert least_s(cell.state, cell.choice("r"), 0) > 2.0 > least_s(cell.state, cell.choice("r"), 1)

    assert cell.choice("r").is_open


def test_alone_a_request_is_always_tried() -> None:
    """Rates that are wrong are put right by trying, and nobody is kept waiting by it."""
    cell = busy()
    cell.cancel("first")
    cell.run()
    cell.submit("r", prompt(50, 300), params(4), deadline_s=1.0, is_timed=True)

    assert cell.choice("r").phase is Phase.PREFILLING


def test_without_rates_nobody_is_given_up() -> None:
    """A cell that has just begun knows nothing."""
    cell = busy(steps=KNOWN_STEPS - 1)
    cell.submit("r", prompt(400, 300), params(4), deadline_s=0.5, is_timed=True)

    assert cell.choice("r").is_open


def test_who_was_begun_is_not_given_up_before_its_deadline() -> None:
    """What it has is worth more than what it may lack; only those who wait for the first time are looked at."""
    cell = busy()
    cell.submit("r", prompt(8, 300), params(4), deadline_s=10.0, is_timed=True)
    choice = cell.choice("r")
    choice.cached_tokens = 0  # as if it had been preempted

    expire(cell, 9.9)
    assert choice.is_open
    expire(cell, 0.2)
    assert failed(cell, "r") == "deadline_exceeded"


def test_the_latest_start_is_a_time_to_wake_up_at() -> None:
    """Nothing else may happen until then; whoever is behind another one is looked at as well."""
    cell = busy()
    cell.submit("next", prompt(30, 600), params(4), priority=-1)
    cell.submit("r", prompt(50, 300), params(4), deadline_s=20.0, is_timed=True)
    for worker in cell.state.workers.values():
        worker.heard_s = cell.now_s + 60.0
    cell.state.gateways[GATEWAY].heard_s = cell.now_s + 60.0
    latest_s = cell.choice("r").deadline_s - least_s(cell.state, cell.choice("r"), 0)
    assert next_expiry_s(cell.state) == pytest.approx(latest_s)

    cell.pass_s(latest_s - cell.now_s + 0.001)

    assert failed(cell, "r") == "deadline_unreachable" and cell.choice("next").is_open
