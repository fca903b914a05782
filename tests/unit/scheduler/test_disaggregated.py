"""A request's life where one worker computes its prompt and another one its answer."""

import pytest

from libs.contracts.messages import Delta
from services.scheduler.reasons import Reason
from services.scheduler.state import DECODE, PREFILL
from tests.fakes.engine import expected
from tests.unit.scheduler.cell import Cell, disaggregated, params, prompt


@pytest.mark.parametrize("tokens", [1, 16, 33, 100])
@pytest.mark.parametrize("max_tokens", [1, 2, 40])
def test_the_tokens_are_those_of_the_plain_generator(tokens: int, max_tokens: int) -> None:
    """Whoever computed which of them."""
    cell = disaggregated()
    cell.submit("r", prompt(tokens), params(max_tokens))
    cell.run()
    assert cell.log("r") == expected(prompt(tokens), params(max_tokens))[0]
    assert cell.deliver("r") and cell.is_clean


def test_a_hand_over_copies_nothing() -> None:
    """Same blocks, same epoch; the decode worker has one token to commit; both orders go out in one turn."""
    cell = disaggregated()
    cell.submit("r", prompt(40), params(20))
    cell.run()
    added = {
        send.incarnation: send.message.added
        for send in cell.sent
        if isinstance(send.message, Delta) and send.message.added
    }
    [prefill], [decode] = added["prefill-1-life"], added["decode-1-life"]
    assert (prefill.until, decode.until) == (1, 20)
    assert prefill.block_table == decode.block_table[: len(prefill.block_table)]
    assert (decode.epoch, decode.cursor, len(decode.ids)) == (prefill.epoch, 40, 41)
    assert not any(delta.copies for delta in cell.deltas)
    turns = [commands for commands in cell.commands if any(adds(command, decode.sequence) for command in commands)]
    assert any(removes(command, decode.sequence) for command in turns[1])


def test_a_single_token_ends_at_the_prefill_worker() -> None:
    """There is nothing to hand over."""
    cell = disaggregated()
    cell.submit("r", prompt(40), params(1))
    cell.run()
    assert cell.workers["decode-1-life"].steps == 0
    assert cell.deliver("r") and cell.is_clean


def test_a_prompt_is_not_computed_without_somebody_to_decode() -> None:
    """Its KV would only hold memory."""
    cell = Cell(role="disaggregated")
    worker = cell.add_worker("prefill-1", PREFILL)
    cell.submit("r", prompt(40))
    cell.run()
    assert (cell.choice("r").reason, worker.steps) == (Reason.NO_WORKER, 0)
    cell.add_worker("decode-1", DECODE)
    cell.run()
    assert cell.log("r") == expected(prompt(40), params())[0]


def test_the_decode_worker_that_is_lost_before_the_hand_over_is_replaced() -> None:
    """It had nothing of the request yet."""
    cell = disaggregated(max_chunk_tokens=16)
    cell.submit("r", prompt(60), params(4))
    cell.step(cell.workers["prefill-1-life"])
    cell.die(cell.workers["decode-1-life"])
    cell.add_worker("decode-2", DECODE)
    cell.run()
    assert cell.log("r") == expected(prompt(60), params(4))[0]
    assert sum(len(delta.added) for delta in cell.deltas) == 2, "handed over, not computed again"


def test_a_request_with_nobody_left_to_decode_it_waits_with_its_token() -> None:
    """It goes on, from where it was, as soon as there is a worker."""
    cell = disaggregated()
    cell.submit("r", prompt(60), params(4))
    cell.alive()
    cell.die(cell.workers["decode-1-life"])
    cell.run()
    assert (cell.choice("r").reason, cell.choice("r").generated) == (Reason.NO_WORKER, 1)
    cell.add_worker("decode-2", DECODE)
    cell.run()
    assert cell.log("r") == expected(prompt(60), params(4))[0]


def test_auto_hands_over_only_what_is_worth_it() -> None:
    """From the set number of tokens to compute on; what is cached does not count."""
    cell = Cell(role="auto", disaggregate_min_tokens=40)
    prefill = cell.add_worker("prefill-1", PREFILL)
    cell.add_worker("decode-1", DECODE)
    cell.submit("short", prompt(39, 500))
    cell.run()
    assert prefill.steps == 0
    cell.submit("long", prompt(48))
    cell.run()
    steps = prefill.steps
    assert steps > 0
    cell.submit("known", prompt(80))
    cell.run()
    assert prefill.steps == steps


def test_prompts_go_to_the_prefill_worker_with_the_least_to_do() -> None:
    """And answers to the decode worker with the fewest rows, those promised to it included."""
    cell = Cell(role="disaggregated", max_chunk_tokens=16)
    for name in ("prefill-1", "prefill-2"):
        cell.add_worker(name, PREFILL)
    for name in ("decode-1", "decode-2"):
        cell.add_worker(name, DECODE)
    cell.run()
    cell.submit("a", prompt(100))
    cell.submit("b", prompt(20, 500))
    cell.submit("c", prompt(20, 700))
    choices = [cell.choice(name) for name in "abc"]
    assert [choice.worker for choice in choices] == ["prefill-1-life", "prefill-2-life", "prefill-2-life"]
    assert [choice.decode_worker for choice in choices] == ["decode-1-life", "decode-2-life", "decode-1-life"]


def adds(command: object, sequence: int) -> bool:
    message = getattr(command, "message", None)
    return isinstance(message, Delta) and any(resident.sequence == sequence for resident in message.added)


def removes(command: object, sequence: int) -> bool:
    message = getattr(command, "message", None)
    return isinstance(message, Delta) and sequence in message.removed
