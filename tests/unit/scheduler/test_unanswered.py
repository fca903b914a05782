"""A new term whose gateway does not say in time what it holds: the request is generated again, and still once."""

from libs.contracts.messages import LogQuery, Resend
from services.scheduler.choice import Phase
from tests.unit.scheduler.cell import Cell
from tests.unit.scheduler.succession import EXPECTED, PROMPT, SAMPLING, succeeded


def generated_again() -> Cell:
    """Nobody has told it that the gateway listens to attempt 5."""
    cell, worker = succeeded()
    cell.gateway_answers = False
    cell.gateway.held["r"].epoch = 5
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.pass_while_alive(1.0)
    cell.attach(worker)
    cell.run(lambda: cell.choice("r").generated > 14)
    return cell


def test_a_late_answer_of_a_higher_epoch_is_gone_above() -> None:
    """What was begun without the gateway's answer would not be listened to."""
    cell = generated_again()
    assert cell.choice("r").epoch == 2 and cell.gateway.held["r"].epoch == 5
    cell.gateway_answers = True
    cell.turn()
    cell.run()
    assert cell.gateway.held["r"].epoch == 6
    assert cell.log("r") == tuple(cell.gateway.held["r"].ids) == EXPECTED


def test_a_question_that_names_a_higher_epoch_is_gone_above() -> None:
    """The answer is lost, but not that the gateway listens to another attempt."""
    cell = generated_again()
    for _ in range(2):
        cell.ask(Resend("r", 0, 0, term=2, epoch=5))
    cell.run()
    assert cell.choice("r").epoch == 6 and cell.state.counts["raised_unanswered"] == 1
    assert cell.log("r") == EXPECTED


def test_a_question_does_not_answer_for_a_log() -> None:
    """While the gateway is asked what it holds, nothing is raised: its worker goes on with the attempt."""
    cell, _ = succeeded()
    cell.gateway_answers = False
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.ask(Resend("r", 0, 0, term=2, epoch=9))
    assert cell.choice("r").phase is Phase.ASKING and cell.choice("r").epoch == 1


def test_nor_does_one_while_a_worker_s_death_is_told() -> None:
    """It names the attempt that the question has just raised it to; its log comes behind it."""
    cell = generated_again()
    cell.gateway.held["r"].epoch = 2
    (worker,) = cell.workers.values()
    cell.asks.clear()
    cell.replace(worker)
    assert cell.choice("r").phase is Phase.ASKING and cell.choice("r").epoch == 3
    cell.ask(Resend("r", 0, 0, term=2, epoch=3))
    cell.gateway_answers = True
    cell.turn()
    cell.run()
    assert cell.log("r") == tuple(cell.gateway.held["r"].ids) == EXPECTED


def test_without_an_answer_it_is_generated_again() -> None:
    """After a second; a late answer that nobody wants it still counts."""
    cell, worker = succeeded()
    cell.gateway_answers = False
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    assert [ask.message for ask in cell.asks] == [LogQuery(("r",), 2, "c0")]
    cell.pass_while_alive(0.5)
    assert cell.choice("r").phase is Phase.ASKING
    cell.pass_while_alive(0.5)
    assert cell.choice("r").phase is Phase.WAITING and cell.choice("r").generated == 0
    cell.attach(worker)
    cell.run(lambda: cell.choice("r").generated > 14)
    assert tuple(cell.gateway.held["r"].ids) == EXPECTED[: len(cell.gateway.held["r"].ids)]
    cell.gateway.close("r")
    cell.answer_ask()
    assert cell.acked == ["r"]


def test_what_a_worker_tells_of_a_fenced_attempt_is_not_believed() -> None:
    """Only the gateway knows whether it was, and it does not answer: the same tokens are drawn again."""
    cell, worker = succeeded()
    cell.gateway.held["r"].epoch = 2  # the older term had taken the request from this worker
    garbled = iter((True,))
    worker.garbles = lambda resident: next(garbled, False)
    assert worker.boundary() == worker.boundary() == [], "its link is down"
    cell.gateway_answers = False
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.pass_while_alive(1.0)
    cell.attach(worker)
    cell.run(lambda: bool(cell.choice("r").worker))
    assert (cell.choice("r").generated, cell.choice("r").epoch) == (0, 2)
    cell.run()
    assert cell.log("r") == EXPECTED
