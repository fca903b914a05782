"""A worker is lost: what it ran goes on elsewhere, and nobody touches what it may still write."""

from collections.abc import Callable

import pytest

from libs.contracts.messages import ChoiceEpoch, ChoiceLog, EpochRaised, Failed, Finished, Gone, RequestLog, StepResult
from services.scheduler.choice import Phase
from services.scheduler.events import KillWorker, Logged
from services.scheduler.state import DECODE, PREFILL
from services.scheduler.timeouts import next_expiry_s
from tests.fakes.engine import expected
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import GATEWAY, Cell, disaggregated, hybrid, params, prompt

PROMPT, SAMPLING = prompt(40), params(60)
EXPECTED = expected(PROMPT, SAMPLING)[0]


def named(cell: Cell, name: str) -> FakeWorker:
    return next(worker for worker in cell.workers.values() if worker.name == name)


def running(generated: int = 20, **changes: object) -> tuple[Cell, FakeWorker]:
    """A hybrid cell whose only worker is in the middle of `r`."""
    cell = hybrid(**changes)
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: cell.choice("r").generated == generated)
    return cell, named(cell, "decode-1")


def lose(cell: Cell, worker: FakeWorker) -> None:
    """Its link closes for good; its process may still be there."""
    cell.close_link(worker)
    cell.pass_while_alive(1.0)


def prefilling(cell: Cell) -> bool:
    return 0 < cell.choice("r").cursor < len(PROMPT)


def first_token(cell: Cell) -> bool:
    return cell.choice("r").generated == 1


def decoding(cell: Cell) -> bool:
    return cell.choice("r").generated == 25


@pytest.mark.parametrize("make", [hybrid, disaggregated])
@pytest.mark.parametrize("state", [prefilling, first_token, decoding])
@pytest.mark.parametrize("role", [DECODE, PREFILL])
def test_a_request_survives_the_death_of_any_worker(
    make: Callable[..., Cell], state: Callable[[Cell], bool], role: str
) -> None:
    """Wherever it stands, the tokens are those of an undisturbed run, each once, and nothing is left over."""
    cell = make(max_chunk_tokens=16)
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: state(cell))
    for worker in [worker for worker in cell.workers.values() if worker.identity.role == role]:
        cell.replace(worker)
    cell.run()
    assert tuple(cell.gateway.held["r"].ids) == cell.log("r") == EXPECTED
    assert [type(message) for message in cell.told] == [Finished]
    assert cell.deliver("r") and cell.is_clean


def test_nothing_is_computed_again_but_what_no_result_told() -> None:
    """Whole blocks are shared, the tail is copied: with all results in, a step a token is left."""
    cell, worker = running()
    cell.replace(worker)
    cell.run()
    assert cell.state.counts["moved_sequences"] == 1
    assert cell.state.counts["recomputed_tokens"] == 0
    assert cell.log("r") == EXPECTED
    [replacement] = cell.workers.values()
    assert replacement.steps == len(EXPECTED) - 20 + 1, "the last one confirms the removal"


def test_tokens_that_only_the_gateway_has_are_not_drawn_again() -> None:
    """Results trail the frames; the pool's fill counts tell that their KV is there: only the last is computed again."""
    cell, worker = running()
    for _ in range(5):
        worker.boundary()
    cell.replace(worker)
    assert cell.choice("r").generated == 25
    cell.run()
    assert cell.state.counts["recomputed_tokens"] == 0
    assert cell.log("r") == EXPECTED
    [replacement] = cell.workers.values()
    assert replacement.steps == len(EXPECTED) - 25 + 1


def test_the_order_of_recovery() -> None:
    """Epoch, gateway, elsewhere; the blocks that the lost worker may write come back with its end, not before."""
    cell, worker = running()
    other = cell.add_worker("decode-2", DECODE)
    cell.run(lambda: bool(other.versions))
    cell.gateway_answers = False
    writable = set(cell.choice("r").table[(len(PROMPT) + 20) // 16 :])
    lose(cell, worker)
    assert cell.killed == [KillWorker("host", worker.incarnation)]
    [ask] = cell.asks
    assert (
        ask.message == EpochRaised("r", 1, "c0", (ChoiceEpoch(0, 2, deaths=1, died_at=60),)) and ask.gateway == GATEWAY
    )
    cell.pass_while_alive(30.0)
    assert cell.choice("r").phase is Phase.ASKING, "it waits for its gateway as long as that lives"

    cell.answer_ask()
    assert cell.choice("r").worker == other.incarnation
    assert writable.isdisjoint(cell.choice("r").table)
    assert not writable.intersection(cell.state.memory.pool.free())
    cell.run()
    assert cell.log("r") == EXPECTED
    cell.deliver("r")
    assert not cell.is_clean
    cell.turn(Gone(worker.incarnation))
    assert cell.is_clean


def test_a_worker_that_thaws_changes_nothing() -> None:
    """Its steps write to blocks nobody reads, its frames are of an old epoch, its results do not count."""
    cell, worker = running()
    cell.add_worker("decode-2", DECODE)
    cell.pass_while_alive(1.0)
    assert [kill.incarnation for kill in cell.killed] == [worker.incarnation]
    worker.garbles = cell.gateway.is_fenced
    late = [message for _ in range(6) for message in worker.boundary()]
    assert any(isinstance(message, StepResult) for message in late)
    cell.turn(*late)
    assert cell.state.counts["stale_step_result"] > 0 and cell.gateway.dropped > 0
    cell.run()
    assert tuple(cell.gateway.held["r"].ids) == cell.log("r") == EXPECTED
    assert worker.fenced


@pytest.mark.parametrize("make", [hybrid, disaggregated])
def test_a_worker_without_progress_is_dead(make: Callable[..., Cell]) -> None:
    """A second without a report while it has something to do, though its link is open."""
    cell = make()
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: decoding(cell))
    cell.pass_while_alive(0.5)
    assert cell.killed == []
    cell.pass_while_alive(0.5)
    assert [kill.incarnation for kill in cell.killed] == ["decode-1-life"]


def test_a_slow_worker_is_given_ten_steps() -> None:
    """What is long depends on what it does."""
    cell = hybrid()
    named(cell, "decode-1").step_s = 0.5
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: decoding(cell))
    cell.pass_while_alive(4.0)
    assert cell.killed == []
    cell.pass_while_alive(2.0)
    assert len(cell.killed) == 1


def test_a_worker_with_nothing_to_do_may_be_silent() -> None:
    """Idle, or with rows that wait for blocks: that is no sign of anything."""
    cell = hybrid()
    cell.run()
    cell.pass_s(60)
    assert cell.killed == [] and next_expiry_s(cell.state) is None


def test_a_version_that_is_not_taken_is_a_sign_of_death() -> None:
    """A worker that never stepped is given longer: nobody knows yet what its steps take."""
    cell = hybrid()
    cell.run()
    cell.submit("r", PROMPT, SAMPLING)
    cell.pass_while_alive(4.5)
    assert cell.killed == []
    cell.pass_while_alive(0.5)
    assert len(cell.killed) == 1


def test_without_another_worker_it_waits_for_the_replacement() -> None:
    """And its deadline still holds."""
    cell = hybrid()
    cell.submit("r", PROMPT, SAMPLING, deadline_s=20.0)
    cell.run(lambda: decoding(cell))
    cell.die(named(cell, "decode-1"))
    assert cell.choice("r").phase is Phase.WAITING
    cell.pass_while_alive(20.0)
    [failed] = cell.told
    assert isinstance(failed, Failed) and failed.error.code == "deadline_exceeded"
    cell.answer("r", live=True)
    assert cell.is_clean


def test_a_gateway_that_has_the_end_needs_nothing() -> None:
    """The last result was lost, the last frame was not: it is done without a step."""
    cell, worker = running()
    while worker.boundary():
        pass
    assert cell.gateway.held["r"].end == "length"
    cell.replace(worker)
    assert cell.acked == ["r"] and cell.is_clean


def test_a_gateway_that_does_not_hold_it_any_more_has_it_cancelled() -> None:
    """Nobody waits for it."""
    cell, worker = running()
    cell.gateway.close("r")
    cell.replace(worker)
    assert cell.acked == ["r"] and cell.is_clean


def test_logs_that_differ_are_never_spliced() -> None:
    """A typed error and a counter."""
    cell, worker = running()
    cell.gateway.held["r"].ids[7] += 1
    cell.replace(worker)
    [failed] = cell.told
    assert isinstance(failed, Failed) and failed.error.code == "exactness_violation"
    assert cell.state.counts["exactness_violation"] == 1
    cell.answer("r", live=True)
    assert cell.is_clean


def test_an_answer_to_an_older_question_does_not_count() -> None:
    """It did not promise to drop the frames of the last attempt."""
    cell, worker = running()
    cell.gateway_answers = False
    lose(cell, worker)
    cell.turn(Logged(RequestLog("r", True, (ChoiceLog(0, (), "", 1),))))
    assert cell.choice("r").phase is Phase.ASKING
    assert cell.state.counts["stale_log"] == 1


def test_log_probabilities_are_computed_again() -> None:
    """The gateway's log has tokens alone."""
    cell = hybrid()
    cell.submit("r", PROMPT, params(30, logprobs=0))
    cell.run(lambda: cell.choice("r").generated == 10)
    worker = named(cell, "decode-1")
    worker.boundary()
    cell.replace(worker)
    cell.run()
    assert len(cell.resend("r").logprobs) == len(cell.log("r")) == 30
    assert cell.log("r") == expected(PROMPT, params(30))[0]


def test_who_waits_for_the_prefix_of_a_lost_worker_computes_it() -> None:
    """Its pending blocks vanish with it."""
    cell = hybrid(max_chunk_tokens=16)
    worker = named(cell, "decode-1")
    cell.submit("a", prompt(100), SAMPLING)
    cell.submit("b", prompt(120), SAMPLING)
    cell.run(lambda: cell.choice("a").cursor >= 32)
    assert cell.choice("b").reason.value == "pending_prefix"
    cell.gateway_answers = False
    other = cell.add_worker("decode-2", DECODE)
    lose(cell, worker)
    assert cell.choice("b").worker == other.incarnation
    cell.gateway_answers = True
    cell.turn()
    cell.run()
    for name, tokens in (("a", 100), ("b", 120)):
        assert cell.log(name) == expected(prompt(tokens), SAMPLING)[0]


def test_a_choice_that_is_asked_about_can_be_cancelled() -> None:
    """It leaves nothing; its blocks are not written again before the worker's end."""
    cell, worker = running()
    cell.gateway_answers = False
    lose(cell, worker)
    kept = set(cell.choice("r").table)
    cell.cancel("r")
    assert not cell.state.choices and not cell.state.asking
    cell.add_worker("decode-2", DECODE)
    cell.submit("all", prompt(16 * 58, 500), params(9))
    assert cell.choice("all").reason.value == "no_blocks", "the lost worker may read what was kept, too"
    assert kept and kept <= cell.state.memory.pool.freeing
    cell.cancel("all")
    cell.turn(Gone(worker.incarnation))
    assert cell.is_clean


def test_younger_ones_give_up_what_they_kept() -> None:
    """A pool full of kept blocks must not keep the oldest from going on."""
    cell = hybrid(blocks=14)
    for index in range(3):
        cell.submit(f"r{index}", prompt(40, 100 + 100 * index), params(100))
    cell.run(lambda: cell.choice("r0").generated == 8)
    cell.replace(named(cell, "decode-1"))
    cell.run()
    for index in range(3):
        assert cell.log(f"r{index}") == expected(prompt(40, 100 + 100 * index), params(100))[0]
        cell.deliver(f"r{index}")
    assert cell.is_clean
