"""Several choices of one request: one prefill, shared blocks, copies where they part, and each the same as alone."""

import pytest

from libs.contracts.messages import SamplingParams, Until
from services.scheduler.choice import Phase
from services.scheduler.state import DECODE
from tests.fakes.engine import expected
from tests.unit.scheduler.cancels import play_cancel
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt

SAMPLING = params(8, temperature=1.0, seed=(1 << 64) - 2)


def choices_of(cell: Cell, request_id: str, count: int) -> list[tuple[int, ...]]:
    return [cell.log(request_id, choice) for choice in range(count)]


def alone(ids: tuple[int, ...], sampling: SamplingParams, count: int) -> list[tuple[int, ...]]:
    """The same request `count` times, each with its own seed."""
    return [expected(ids, sampling, choice)[0] for choice in range(count)]


def test_the_textbook_case() -> None:
    """50 tokens in blocks of 16, four choices: four prompt blocks with four users each; then three copies of the tail,
    the last in place, and three full blocks that stay shared."""
    cell = hybrid()
    ids = prompt(50)
    cell.submit("r", ids, params(40, temperature=1.0), choices=4)
    table = cell.choice("r", 3).table[:4]
    assert [cell.state.memory.pool.references[block] for block in table] == [4, 4, 4, 4]

    cell.run(until=lambda: bool(cell.choice("r", 3).generated))
    parted = cell.deltas[-1]
    assert [(copy.source, copy.tokens) for copy in parted.copies] == [(table[3], 2)] * 3
    assert len({copy.target for copy in parted.copies} | {table[3]}) == 4
    assert parted.untils == (Until(cell.choice("r", 3).handle, 40),)

    cell.run(until=lambda: cell.choice("r", 0).generated > 2)
    tables = [cell.choice("r", index).table for index in range(4)]
    assert all(mine[:3] == table[:3] for mine in tables) and tables[3][3] == table[3]
    assert [cell.state.memory.pool.references[block] for block in table] == [4, 4, 4, 1]
    assert len({mine[3] for mine in tables}) == 4

    cell.run()
    assert choices_of(cell, "r", 4) == alone(ids, params(40, temperature=1.0), 4)
    assert cell.deliver("r") and cell.is_clean


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 48, 50])
@pytest.mark.parametrize("make", [hybrid, disaggregated])
def test_one_prefill_serves_all_choices(tokens: int, make: type[Cell]) -> None:
    """The prompt is computed once, and choice i is the same request alone with seed + i."""
    cell = make()
    cell.submit("r", prompt(tokens), SAMPLING, choices=3)
    cell.run()

    assert choices_of(cell, "r", 3) == alone(prompt(tokens), SAMPLING, 3)
    computed = sum(len(row.token_ids) for worker in cell.workers.values() for row in worker.rows)
    assert computed == tokens + 3 * (SAMPLING.max_tokens - 1)
    assert cell.acked == [] and cell.deliver("r") and cell.acked == ["r"] and cell.is_clean


def test_a_prompt_that_fills_its_last_block_needs_no_copy() -> None:
    """Each choice writes its next token into a block of its own, which it has from the beginning."""
    cell = hybrid()
    cell.submit("r", prompt(48), SAMPLING, choices=3)
    assert [len(cell.choice("r", index).stake) for index in range(3)] == [4, 4, 0]
    cell.run()
    assert not any(delta.copies for delta in cell.deltas)


@pytest.mark.parametrize("make", [hybrid, disaggregated])
def test_each_choice_ends_by_itself(make: type[Cell]) -> None:
    """One may end with its first token, whoever of them it is; the others go on."""
    for ending in range(3):
        cell = make()
        first = expected(prompt(20), SAMPLING, ending)[0][0]
        sampling = params(8, temperature=1.0, seed=SAMPLING.seed, stop_token_ids=(first,))
        cell.submit("r", prompt(20), sampling, choices=3)
        cell.run()
        assert choices_of(cell, "r", 3) == alone(prompt(20), sampling, 3)
        assert len(cell.log("r", ending)) == 1
        assert {told.choice for told in cell.told} == {0, 1, 2}  # type: ignore[union-attr]
        assert cell.deliver("r") and cell.is_clean


def test_a_single_token_each_needs_no_blocks_but_the_prompt_s() -> None:
    """All end with the fork, in a pool that has a spare block for each and no more."""
    cell = hybrid(blocks=10)
    cell.submit("r", prompt(31), params(1, temperature=1.0), choices=8)
    cell.run()
    assert choices_of(cell, "r", 8) == alone(prompt(31), params(1, temperature=1.0), 8)
    assert [len(row.forks) for worker in cell.workers.values() for row in worker.rows] == [7]
    assert cell.deliver("r") and cell.is_clean


@pytest.mark.parametrize("make", [hybrid, disaggregated])
@pytest.mark.parametrize("steps", range(14))
def test_a_worker_s_death_changes_no_choice(make: type[Cell], steps: int) -> None:
    """Whether it dies before, at or after the fork: what is committed is kept, and every choice gets its tokens."""
    cell = make(max_chunk_tokens=16)
    cell.add_worker("decode-2", DECODE)
    cell.submit("r", prompt(50), SAMPLING, choices=3)
    for _ in range(steps):
        for worker in list(cell.workers.values()):
            cell.step(worker)
    for worker in list(cell.workers.values()):
        book = cell.state.workers.get(worker.incarnation)
        if book is not None and book.residents:
            cell.replace(worker)
    cell.run()
    assert choices_of(cell, "r", 3) == alone(prompt(50), SAMPLING, 3)
    assert [tuple(held.ids) for held in cell.gateway.choices["r"]] == alone(prompt(50), SAMPLING, 3)
    assert cell.deliver("r") and cell.is_clean


def test_first_tokens_that_only_the_gateway_has_are_gone_on_from() -> None:
    """The worker drew for all and died before it could report: each choice goes on alone, in an attempt of its own."""
    cell = hybrid()
    cell.add_worker("decode-2", DECODE)
    cell.submit("r", prompt(20), SAMPLING, choices=3)
    (worker,) = (w for w in cell.workers.values() if cell.state.workers[w.incarnation].residents)
    while not cell.gateway.choices["r"][0].ids:
        worker.boundary()
    cell.replace(worker)

    assert all(len(cell.log("r", choice)) == 1 for choice in range(3))
    cell.run()
    assert [held.epoch for held in cell.gateway.choices["r"]] == [2, 2, 2]
    assert choices_of(cell, "r", 3) == alone(prompt(20), SAMPLING, 3)


def test_choices_that_the_pool_cannot_hold_together_go_one_by_one() -> None:
    """They share what they can, and each is the same."""
    cell = hybrid(blocks=6)
    cell.submit("r", prompt(33), SAMPLING, choices=8)
    cell.run()
    assert choices_of(cell, "r", 8) == alone(prompt(33), SAMPLING, 8)
    assert cell.deliver("r") and cell.is_clean


def test_a_cancel_ends_all_choices_at_once() -> None:
    """Before the fork and after it: every block comes back."""
    for steps in range(6):
        play_cancel(SAMPLING, choices=3, steps=steps)


def test_a_stop_string_ends_one_choice() -> None:
    """The gateway's cut is of that choice alone."""
    cell = hybrid()
    cell.submit("r", prompt(20), SAMPLING, choices=3)
    cell.run(until=lambda: cell.choice("r", 1).generated > 3)
    assert cell.stop_at("r", 2, choice=1)
    cell.run()
    whole = alone(prompt(20), SAMPLING, 3)
    assert choices_of(cell, "r", 3) == [whole[0], whole[1][:3], whole[2]]


def test_a_stop_of_the_leader_leaves_the_others_to_themselves() -> None:
    """Its first token was known to the gateway alone, and was the last."""
    cell = Cell()
    cell.submit("r", prompt(20), SAMPLING, choices=3)
    assert cell.stop_at("r", 0, choice=2)
    cell.add_worker("decode-1", DECODE)
    cell.run()
    assert choices_of(cell, "r", 3)[:2] == alone(prompt(20), SAMPLING, 2)


@pytest.mark.parametrize("make", [hybrid, disaggregated])
def test_a_fork_s_first_token_is_no_word_of_the_place_it_was_given_since(make: type[Cell]) -> None:
    """The stop of its leader was faster than the step that tells of them both."""
    cell = make()
    cell.run()
    cell.submit("r", prompt(5), SAMPLING, choices=3)
    worker = cell.workers[cell.choice("r", 2).worker]
    told = worker.boundary()
    assert cell.stop_at("r", 0, choice=2)
    assert cell.choice("r", 0).worker == worker.incarnation
    for message in told:
        cell.turn(message)
    assert {(other.phase, other.worker) for other in cell.state.requests["r"].choices[:2]} == {
        (Phase.PREFILLING, worker.incarnation)
    }
    cell.run()
    assert choices_of(cell, "r", 3)[:2] == alone(prompt(5), SAMPLING, 2)
    assert cell.deliver("r") and cell.is_clean


def test_choices_count_among_those_that_may_run() -> None:
    """From their leader's admission on; more than may run at once run alone."""
    cell = hybrid(max_running=4)
    for name in ("a", "b"):
        cell.submit(name, prompt(20), SAMPLING, choices=3)
    cell.submit("c", prompt(20), SAMPLING, choices=6)
    most: dict[str, int] = {}

    def count() -> bool:
        running = {choice.request_id for choice in cell.state.running.values()}
        most.setdefault("+".join(sorted(running)), len(cell.state.running))
        return False

    cell.run(until=count)
    assert not {"a+b", "b+c", "a+b+c"} & most.keys()
    assert choices_of(cell, "c", 6) == alone(prompt(20), SAMPLING, 6)


def test_a_leader_that_gives_way_takes_its_forks_along() -> None:
    """Preempted before its first token it waits with them, and they fork later."""
    cell = hybrid(blocks=12, max_chunk_tokens=16)
    cell.submit("old", prompt(16, 500), params(120))
    cell.run(until=lambda: len(cell.log("old")) > 60)
    cell.submit("r", prompt(50), SAMPLING, choices=3)
    cell.run()
    assert choices_of(cell, "r", 3) == alone(prompt(50), SAMPLING, 3)
    assert cell.log("old") == expected(prompt(16, 500), params(120))[0]


def test_a_deadline_ends_all_choices_with_one_error() -> None:
    """The gateway is told once."""
    cell = hybrid()
    cell.submit("r", prompt(20), params(200), choices=3, deadline_s=1.0)
    cell.run(until=lambda: cell.choice("r", 0).generated > 3)
    cell.pass_s(1.0)
    cell.answer("r", live=True)
    cell.run()
    assert len(cell.told) == 1 and cell.is_clean


def test_a_new_term_goes_on_with_every_choice() -> None:
    """A scheduler that takes over after the fork adopts each choice where it is."""
    cell = Cell()
    worker = cell.add_worker("decode-1", DECODE)
    cell.submit("r", prompt(50), SAMPLING, choices=3)
    cell.run(until=lambda: cell.choice("r", 0).generated > 3)
    new = Cell(term=2)
    new.pool, new.gateway = cell.pool, cell.gateway
    new.gateway.resend = lambda request_id, choice, position: new.resend(request_id, position, choice).ids
    new.workers[worker.incarnation] = worker
    worker.detach()
    new.attach(worker)
    new.turn(new.arrival("r", prompt(50), SAMPLING, choices=3, is_older=True))
    new.run()
    assert new.state.counts["adopted_sequences"] == 3
    assert choices_of(new, "r", 3) == alone(prompt(50), SAMPLING, 3)
    assert [held.epoch for held in new.gateway.choices["r"]] == [1, 1, 1]


def test_too_many_choices_are_refused() -> None:
    """By a typed error; none at all, too, and more than a search keeps."""
    cell = hybrid()
    cell.submit("many", prompt(5), params(2), choices=129)
    cell.submit("none", prompt(5), params(2), choices=0)
    cell.submit("wide", prompt(5), params(2, beam_width=129), choices=1)
    cell.submit("narrow", prompt(5), params(2, beam_width=2), choices=3)
    assert [told.error.code for told in cell.told] == ["invalid_request"] * 4  # type: ignore[union-attr]
    for request_id in ("many", "none", "wide", "narrow"):
        cell.answer(request_id, live=True)
    assert cell.is_clean
