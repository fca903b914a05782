"""A request's life where one worker computes its prompt and its answer."""

import pytest

from libs.contracts.messages import Ack, Finished
from services.scheduler.chunk_size import FIRST_TOKENS
from services.scheduler.events import OpenCell, UpdateIndex
from tests.fakes.engine import expected
from tests.unit.scheduler.cell import Cell, hybrid, params, prompt


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 32, 100])
@pytest.mark.parametrize("max_tokens", [1, 2, 40])
def test_a_request_gets_the_tokens_of_the_plain_generator(tokens: int, max_tokens: int) -> None:
    """Around every block end, and with nothing to decode after the prompt."""
    cell = hybrid()
    cell.submit("r", prompt(tokens), params(max_tokens))
    cell.run()
    assert cell.log("r") == expected(prompt(tokens), params(max_tokens))[0]
    assert cell.told == [Finished("r", 1, 0, max_tokens, "length", 1, "c0")]


def test_a_delivered_request_is_acknowledged_and_leaves_only_cached_blocks() -> None:
    """The message leaves the queue once, and nothing is held for it."""
    cell = hybrid()
    cell.submit("r", prompt(40), params(20))
    cell.run()
    assert cell.acked == []
    assert cell.deliver("r")
    assert cell.acked == ["r"]
    assert cell.is_clean and cell.blocks[1] == 3  # 59 of its 60 tokens were committed
    assert not cell.deliver("r")


def test_a_long_prompt_goes_in_chunks_and_the_worker_never_waits_for_the_next() -> None:
    """Two versions ahead: when a step ends the next chunk is there."""
    cell = hybrid(max_chunk_tokens=32)
    cell.submit("r", prompt(200), params(2))
    worker = next(iter(cell.workers.values()))
    chunked = 0
    while len(cell.choice("r").ids) == 200:
        assert cell.step(worker), "parked during a prompt"
        chunked += 1
    assert chunked == 8  # one boundary for the Snapshot, then ⌈200 / 32⌉
    assert [chunk.tokens for delta in cell.deltas for chunk in delta.chunks] == [32] * 6 + [8]


def test_chunks_of_several_prompts_share_the_budget_oldest_first() -> None:
    """The younger one gets what the older leaves."""
    cell = hybrid(max_chunk_tokens=64)
    requests = {"a": prompt(50, 100), "b": prompt(30, 300), "c": prompt(40, 500)}
    cell.turn(*(cell.arrival(name, ids, params(4)) for name, ids in requests.items()))
    cell.run()
    handles = {cell.choice(name).handle: name for name in requests}
    chunks = [[(handles[item.sequence], item.tokens) for item in delta.chunks] for delta in cell.deltas if delta.chunks]
    assert chunks == [[("a", 50), ("b", 14)], [("b", 16), ("c", 40)]]
    for name, ids in requests.items():
        assert cell.log(name) == expected(ids, params(4))[0]


def test_chunks_shrink_to_what_fits_the_target_time() -> None:
    """Rows that decode beside a chunk must not wait for long."""
    cell = hybrid(max_chunk_tokens=128, chunk_target_s=0.25)
    worker = next(iter(cell.workers.values()))
    worker.step_s = 1.0
    cell.submit("r", prompt(600), params(2))
    cell.run()
    sizes = [chunk.tokens for delta in cell.deltas for chunk in delta.chunks]
    assert max(sizes) == FIRST_TOKENS and set(sizes[-10:-1]) == {16}


def test_a_step_beside_streams_fits_their_target() -> None:
    """A long prompt moves in smaller chunks while somebody decodes, and in larger ones once nobody does."""
    cell = hybrid(blocks=256, itl_target_s=0.05, chunk_target_s=0.25)
    worker = next(iter(cell.workers.values()))
    worker.step_s, worker.token_s = 0.01, 0.001
    cell.submit("stream", prompt(20), params(40))
    cell.run(until=lambda: len(worker.took) > 2)
    cell.submit("long", prompt(3000, first=5000), params(2))
    cell.run()
    beside_s = [seconds for seconds, rows in worker.took if rows > 1]
    assert len(beside_s) > 20 and max(beside_s[5:]) <= 0.05
    assert max(seconds for seconds, _ in worker.took) > 0.15


def test_a_prompt_beside_many_streams_has_the_greater_part_of_each_step() -> None:
    """However slow the streams alone are: who comes to a full worker gets its first token all the same."""
    cell = hybrid(blocks=1024, itl_target_s=0.05)
    worker = next(iter(cell.workers.values()))
    worker.step_s = 0.06
    for number in range(40):
        cell.submit(f"stream {number}", prompt(17, first=1000 * number), params(200))
    cell.run(until=lambda: len(worker.took) > 60)
    cell.submit("late", prompt(600, first=45_000), params(2))
    before = len(cell.deltas)
    cell.run(until=lambda: cell.choice("late").generated > 0)
    sizes = [sum(chunk.tokens for chunk in delta.chunks) for delta in cell.deltas[before:] if delta.chunks]
    assert sizes[:-1] and set(sizes[:-1]) == {60}


def test_chunks_of_a_cold_worker_start_small_and_grow() -> None:
    """What a step costs is learnt from small ones: two large ones ahead could not be called back."""
    cell = hybrid(max_chunk_tokens=256)
    cell.submit("r", prompt(1000), params(2))
    cell.run()
    sizes = [chunk.tokens for delta in cell.deltas for chunk in delta.chunks]
    assert sizes[0] == FIRST_TOKENS and max(sizes) == 256


def test_a_short_rest_of_a_prompt_comes_along() -> None:
    """Ten more tokens in this step are cheaper than a step for ten tokens, where no row decodes beside them."""
    cell = hybrid(max_chunk_tokens=256)
    cell.submit("r", prompt(FIRST_TOKENS + 10), params(2))
    cell.run()
    sizes = [chunk.tokens for delta in cell.deltas for chunk in delta.chunks]
    assert sizes == [FIRST_TOKENS + 10]


def test_steady_decode_needs_no_message_while_its_grant_lasts() -> None:
    """150 tokens ahead at 20 ms a step: nothing but acknowledgements goes out for dozens of steps."""
    cell = hybrid()
    cell.submit("r", prompt(20), params(400))
    cell.run(lambda: cell.choice("r").generated >= 10)
    before = len(cell.deltas)
    cell.run(lambda: cell.choice("r").generated >= 60)
    assert len(cell.deltas) - before <= 1


def test_the_worker_is_acknowledged_at_the_latest_after_sixteen_steps() -> None:
    """So what it has to keep for another scheduler stays small."""
    cell = hybrid()
    worker = next(iter(cell.workers.values()))
    cell.submit("r", prompt(20), params(200))
    most = 0
    while cell.step(worker):
        most = max(most, worker.unacked_steps)
    assert most <= 16 and worker.unacked_steps <= 1


def test_an_order_that_ends_nobody_brings_no_acknowledgement() -> None:
    """Each message costs both ends more than a result that is kept for a while: a long prompt has an order a step."""
    cell = hybrid()
    cell.submit("r", prompt(700), params(5))
    cell.run(lambda: cell.choice("r").generated >= 1)
    assert len(cell.deltas) >= 3
    assert not any(isinstance(send.message, Ack) for send in cell.sent)


def test_min_tokens_eos_and_stop_ids_are_the_workers_to_judge() -> None:
    """Its end is logged with the token that made it."""
    sampling = params(200, ignore_eos=False, stop_token_ids=(11, 12, 13), min_tokens=5)
    cell = hybrid()
    cell.submit("r", prompt(30), sampling)
    cell.run()
    ids, reason = expected(prompt(30), sampling)
    assert (cell.log("r"), cell.resend("r").end) == (ids, reason)


def test_logits_that_are_not_finite_end_the_request_and_are_not_cached() -> None:
    """What that step wrote is not to be shared."""
    cell = Cell()
    cell.add_worker("decode-1", "decode", nan_ids=frozenset({prompt(32)[-1]}))
    cell.submit("r", prompt(32), params(8))
    cell.run()
    assert cell.told == [Finished("r", 1, 0, 0, "error", 1, "c0")]
    assert cell.blocks[1] == 0 and cell.deliver("r") and cell.is_clean


def test_an_id_that_the_model_does_not_have_fails_its_request_alone() -> None:
    """Gateway and tokenizer refuse such a prompt; if they know another vocabulary than the model, no worker dies."""
    cell = Cell()
    worker = cell.add_worker("decode-1", "decode", vocab_size=700)
    cell.submit("bad", (*prompt(40), 700), params(8))
    cell.submit("good", prompt(40), params(1))
    cell.run()
    assert Finished("bad", 1, 0, 0, "error", 1, "c0") in cell.told and not cell.killed
    assert cell.log("good") == expected(prompt(40), params(1))[0] and worker.versions
    assert cell.deliver("bad") and cell.deliver("good") and cell.is_clean


def test_a_resend_gives_the_log_from_a_position_on() -> None:
    """The end comes with the last token only, and unknown requests are said to be unknown."""
    cell = hybrid()
    cell.submit("r", prompt(20), params(8, logprobs=0))
    cell.run(lambda: cell.choice("r").generated == 3)
    assert cell.resend("r").end == ""
    cell.run()
    resent = cell.resend("r", 5)
    assert (resent.ids, resent.end) == (expected(prompt(20), params(8))[0][5:], "length")
    assert len(resent.logprobs) == 3
    assert not cell.resend("unknown").known


def test_the_cell_opens_with_what_its_first_worker_can_hold() -> None:
    """Of context and pool the smaller, less the one token that is to be generated."""
    cell = hybrid(blocks=10)
    assert cell.opened == [OpenCell(16, "fake-model", 159)]


def test_the_index_hears_of_prompt_blocks_stored_and_evicted() -> None:
    """Generated blocks have no hash; what is stored again after its eviction is stored."""
    cell = hybrid(blocks=4)
    cell.submit("a", prompt(33), params(2))
    cell.run()
    stored = [block for update in cell.indexed for block in update.stored]
    assert len(stored) == 2
    cell.submit("b", prompt(50, 500), params(2))
    cell.run()
    assert {block for update in cell.indexed for block in update.evicted} == set(stored)
    assert all(isinstance(update, UpdateIndex) for update in cell.indexed)


def test_a_cancelled_prompt_is_computed_for_two_more_chunks_at_most() -> None:
    """The one that runs and the one that waits; its blocks are back after them."""
    cell = hybrid(max_chunk_tokens=64)
    worker = next(iter(cell.workers.values()))
    cell.submit("r", prompt(640), params(4))
    for _ in range(3):
        cell.step(worker)
    cell.cancel("r")
    steps = 0
    while not cell.is_clean and cell.step(worker):
        steps += 1
    assert cell.is_clean and steps <= 3  # two chunks, and the step that reports the removal
