"""How a request ends before its worker ends it: cancelled, stopped by the gateway, too late, too long, doubled."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from libs.contracts.messages import Cancel, Delivered, Failed, Finished, StepResult, StopAt
from services.scheduler.choice import Phase
from services.scheduler.reasons import Reason
from services.scheduler.state import DECODE
from services.scheduler.timeouts import next_expiry_s
from tests.fakes.engine import expected
from tests.unit.scheduler.cell import GATEWAY, Cell, disaggregated, hybrid, params, prompt

SHORT, LONG = prompt(20), prompt(200)


def waiting(cell: Cell) -> bool:
    return cell.choice("r").phase is Phase.WAITING


def ordered_but_not_begun(cell: Cell) -> bool:
    return cell.choice("r").phase is Phase.PREFILLING


def half_computed(cell: Cell) -> bool:
    return 0 < cell.choice("r").cursor < 200


def decoding(cell: Cell) -> bool:
    return cell.choice("r").generated >= 3


def handed_over(cell: Cell) -> bool:
    return cell.choice("r").reason is Reason.HANDED_OVER


def ended(cell: Cell) -> bool:
    return cell.choice("r").phase is Phase.ENDED


STATES = (waiting, ordered_but_not_begun, half_computed, decoding, ended)


@pytest.mark.parametrize(
    ("make", "state"),
    [(make, state) for make in (hybrid, disaggregated) for state in STATES] + [(disaggregated, handed_over)],
)
def test_a_cancelled_request_leaves_nothing_behind(make: type[Cell], state: Callable[[Cell], bool]) -> None:
    """In every state: acknowledged at once, and two steps later no block is held or freeing."""
    cell = make(max_chunk_tokens=64, max_running=1)
    if state is waiting:
        cell.submit("older", prompt(30, 700), params(30))
    cell.submit("r", LONG, params(30))
    cell.run(lambda: state(cell))
    assert state(cell)
    assert cell.cancel("r")
    assert cell.acked == ["r"]
    cell.run()

    if state is waiting:
        assert cell.log("older") == expected(prompt(30, 700), params(30))[0]
        cell.deliver("older")
    assert cell.is_clean
    assert not cell.cancel("r"), "the second time it is unknown"


def test_a_request_cancelled_before_it_came_is_dropped_on_arrival() -> None:
    """The Cancel overtook it; it is remembered until its deadline."""
    cell = hybrid()
    assert not cell.cancel("r")
    cell.submit("r", SHORT)
    assert cell.acked == ["r"] and not cell.state.choices


def test_a_cancel_for_nothing_is_forgotten_at_its_deadline() -> None:
    """Unknown requests must not fill the memory."""
    cell = hybrid()
    cell.cancel("r", deadline_s=5)
    assert next_expiry_s(cell.state) == cell.now_s + 5
    cell.pass_s(5)
    assert not cell.state.cancelled and next_expiry_s(cell.state) is None


def test_a_sequence_that_comes_twice_is_run_once() -> None:
    """The second is dropped and not acknowledged: the first one's end does that."""
    cell = hybrid()
    cell.submit("r", SHORT)
    cell.submit("r", SHORT)
    cell.run()
    cell.submit("r", SHORT)
    cell.run()
    assert len(cell.told) == 1 and cell.acked == []
    assert cell.state.counts["duplicate_sequence"] == 2


@pytest.mark.parametrize("make", [hybrid, disaggregated])
def test_a_stop_string_ends_the_log_where_the_gateway_says(make: type[Cell]) -> None:
    """Later tokens are not part of it, and nobody has to tell the gateway."""
    cell = make()
    cell.submit("r", SHORT, params(100))
    cell.run(lambda: cell.choice("r").generated == 10)
    assert cell.stop_at("r", 6)
    cell.run()
    resent = cell.resend("r")
    assert (resent.ids, resent.end) == (expected(SHORT, params(100))[0][:7], "stop")
    assert cell.told == [] and cell.state.counts["exactness_violation"] == 0
    assert cell.deliver("r") and cell.is_clean


def test_a_stop_may_be_ahead_of_what_the_worker_has_reported() -> None:
    """Frames take another way: the log is open until its last token is in."""
    cell = hybrid()
    cell.submit("r", SHORT, params(100))
    worker = next(iter(cell.workers.values()))
    cell.run(lambda: cell.choice("r").generated == 2)
    late = [worker.boundary(), worker.boundary()]
    cell.stop_at("r", 3)
    assert cell.resend("r").end == ""
    for message in [message for messages in late for message in messages]:
        cell.turn(message)
    assert (cell.log("r"), cell.resend("r").end) == (expected(SHORT, params(100))[0][:4], "stop")


def test_what_the_worker_generated_beyond_the_stop_is_nothing_to_wonder_about() -> None:
    """Its results were on their way."""
    cell = hybrid()
    cell.submit("r", SHORT, params(100))
    cell.run(lambda: cell.choice("r").generated == 4)
    late = next(iter(cell.workers.values())).boundary()
    cell.stop_at("r", 1)
    cell.turn(*late)
    cell.run()
    assert len(cell.log("r")) == 2 and cell.state.counts["exactness_violation"] == 0


def test_the_gateways_stop_wins_over_a_later_end_of_the_worker() -> None:
    """Also when the worker was faster."""
    cell = hybrid()
    cell.submit("r", SHORT, params(8))
    cell.run()
    cell.stop_at("r", 4)
    assert (len(cell.log("r")), cell.resend("r").end) == (5, "stop")


def test_a_stop_after_the_workers_end_changes_nothing() -> None:
    """The earlier end counts, whoever found it; so does the earlier of two stops."""
    cell = hybrid()
    cell.submit("r", SHORT, params(8))
    cell.run()
    cell.stop_at("r", 7)
    assert cell.resend("r").end == "length"
    cell.stop_at("r", 2)
    cell.stop_at("r", 3)
    assert len(cell.log("r")) == 3


def test_the_earlier_of_two_stops_wins_also_before_its_token_is_reported() -> None:
    """The log then ends there."""
    cell = hybrid()
    cell.submit("r", SHORT, params(100))
    cell.run(lambda: cell.choice("r").generated == 2)
    cell.stop_at("r", 5)
    cell.stop_at("r", 1)
    cell.run()
    assert (len(cell.log("r")), cell.resend("r").end) == (2, "stop")


def test_several_tokens_at_once_are_cut_at_the_stop() -> None:
    """A draft may commit more than one token a step."""
    cell = hybrid()
    cell.submit("r", SHORT, params(100))
    worker = next(iter(cell.workers.values()))
    cell.run(lambda: cell.choice("r").generated == 2)
    [result] = [message for message in worker.boundary() if isinstance(message, StepResult)]
    cell.stop_at("r", 3)
    cell.turn(replace(result, rows=(replace(result.rows[0], ids=(7, 8, 9)),)))
    assert (cell.log("r")[2:], cell.resend("r").end) == ((7, 8), "stop")


def test_a_stop_whose_tokens_died_with_the_worker_needs_no_other() -> None:
    """The gateway has them: it found the stop string there."""
    cell = hybrid()
    cell.submit("r", SHORT, params(100))
    cell.run(lambda: cell.choice("r").generated == 2)
    cell.stop_at("r", 3)
    cell.die(next(iter(cell.workers.values())))
    assert cell.told == [] and cell.deliver("r") and cell.is_clean


def test_delivered_while_it_still_runs_is_a_cancel() -> None:
    """The last frame overtook the StepResult: the gateway has all it wants."""
    cell = hybrid()
    cell.submit("r", SHORT, params(100))
    cell.run(lambda: decoding(cell))
    cell.ask(Delivered("r", (4,)))
    cell.run()
    assert cell.acked == ["r"] and cell.is_clean


@pytest.mark.parametrize("state", STATES)
def test_a_request_fails_at_its_deadline(state: Callable[[Cell], bool]) -> None:
    """In every state; it is kept until its gateway knows."""
    cell = hybrid(max_chunk_tokens=64, max_running=1)
    if state is waiting:
        cell.submit("older", prompt(30, 700), params(30))
    cell.submit("r", LONG, params(30), deadline_s=0.7)
    cell.run(lambda: state(cell))
    cell.pass_s(0.7)
    failures = [message for message in cell.told if isinstance(message, Failed)]
    assert [(failed.request_id, failed.error.code) for failed in failures] == [("r", "deadline_exceeded")]
    assert cell.acked == []
    cell.answer("r", live=True)
    assert cell.acked == ["r"]
    cell.cancel("older")
    cell.run()
    assert cell.is_clean


def test_a_request_fails_once() -> None:
    """Its deadline says nothing new about one that has failed already."""
    cell = hybrid(blocks=4)
    cell.submit("long", prompt(64), deadline_s=1.0)
    cell.pass_while_alive(1.0)
    assert len(cell.told) == 1


@pytest.mark.parametrize(("blocks", "tokens"), [(4, 64), (400, 4096)])
def test_a_prompt_that_can_never_fit_fails_at_once(blocks: int, tokens: int) -> None:
    """Prompt and one token, in the pool and in the context; one token less is served."""
    cell = hybrid(blocks=blocks)
    cell.submit("long", prompt(tokens))
    cell.submit("fits", prompt(tokens - 1))
    cell.run()
    [failed, finished] = cell.told
    assert isinstance(failed, Failed) and failed.error.code == "context_length_exceeded"
    assert isinstance(finished, Finished) and (finished.total, finished.reason) == (1, "length")


@pytest.mark.parametrize("bad", ["no prompt", "no tokens", "too many choices"])
def test_what_cannot_be_run_is_refused(bad: str) -> None:
    """Others should have caught it; it must not wait for ever."""
    cell = hybrid()
    cell.submit(
        "r",
        () if bad == "no prompt" else SHORT,
        params(0 if bad == "no tokens" else 4),
        choices=129 if bad == "too many choices" else 1,
    )
    [failed] = cell.told
    assert isinstance(failed, Failed) and failed.error.code == "invalid_request"
    cell.answer("r", live=True)
    assert cell.is_clean and cell.acked == ["r"]


def test_a_silent_gateway_has_its_requests_cancelled() -> None:
    """One second after its last word; others go on."""
    cell = hybrid()
    cell.submit("a", SHORT, params(500))
    cell.submit("b", prompt(20, 500), params(30), gateway="gateway-2")
    cell.pass_s(0.5)
    cell.alive("gateway-2")
    cell.pass_s(0.5)
    cell.run()
    assert cell.acked == ["a"]
    assert cell.log("b") == expected(prompt(20, 500), params(30))[0]


def test_nothing_is_watched_while_nothing_is_held() -> None:
    """An idle cell needs no timer."""
    cell = hybrid()
    cell.submit("r", SHORT, params(4))
    assert next_expiry_s(cell.state) == cell.now_s + 1.0
    cell.run()
    cell.deliver("r")
    assert next_expiry_s(cell.state) is None
    cell.alive(GATEWAY)
    assert not cell.state.gateways


def test_a_gateway_that_no_longer_holds_a_finished_request_has_it_forgotten() -> None:
    """Its answer to Finished says so; one that holds it still will say Delivered."""
    cell = hybrid()
    for name in ("a", "b"):
        cell.submit(name, SHORT, params(4))
    cell.run()
    cell.answer("a", live=True)
    cell.answer("b", live=False)
    assert cell.acked == ["b"]


def test_controls_of_unknown_requests_are_answered() -> None:
    """A gateway repeats until it is, so it must be."""
    cell = Cell()
    cell.add_worker("decode-1", DECODE)
    for message in (StopAt("x", 0, 1), Delivered("x", (1,)), Cancel("x", 0)):
        reply = cell.ask(message)
        assert not getattr(reply, "known", True)
