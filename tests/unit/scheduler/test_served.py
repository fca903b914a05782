"""What counts as served, and how the prompt tokens of a step are shared out."""

from services.scheduler.choice import Phase
from services.scheduler.chunk_size import MIN_TOKENS
from tests.unit.scheduler.cell import hybrid, params, prompt
from tests.unit.scheduler.test_swapping import starved


def test_a_tenant_is_charged_for_what_was_computed_for_it() -> None:
    """A prompt but for what was cached, and each generated token twice; once, whatever became of its workers."""
    cell = hybrid()
    cell.submit("a", prompt(40), params(6))
    share = cell.choice("a").share
    cell.run(until=lambda: cell.choice("a").generated == 3)
    cell.replace(next(iter(cell.workers.values())))
    cell.run()
    cell.deliver("a")
    assert share.served == 40 + 2 * 6

    cell.submit("b", prompt(40), params(1))
    cell.run()
    assert cell.choice("b").cached_tokens > 0
    assert share.served == 40 + 2 * 6 + 40 - cell.choice("b").cached_tokens + 2


def test_the_oldest_prompt_moves_on_whoever_comes_before_it() -> None:
    """By a few tokens a chunk: what it holds is to come back some day."""
    cell = hybrid(max_chunk_tokens=64, blocks=256)
    cell.submit("old", prompt(500), params(2), tenant="a")
    worker = next(iter(cell.workers.values()))
    while not cell.choice("old").cursor:
        cell.step(worker)
    for number in range(4):
        cell.submit(f"early-{number}", prompt(300, 50 * number + 13), params(2), priority=-1, tenant="b")
    old, early = cell.choice("old"), cell.choice("early-0")
    while early.cursor < 60:
        cell.step(worker)
    old_at, early_at = old.cursor, early.cursor
    while early.cursor < 250:
        cell.step(worker)

    assert 2 * MIN_TOKENS <= old.cursor - old_at < (early.cursor - early_at) / 2


def test_a_small_chunk_is_not_the_oldests_alone() -> None:
    """Where steps are slow a chunk has few tokens, and who comes first still gets most of them."""
    cell = hybrid(max_chunk_tokens=MIN_TOKENS, blocks=256)
    cell.submit("old", prompt(500), params(2), tenant="a")
    worker = next(iter(cell.workers.values()))
    while not cell.choice("old").cursor:
        cell.step(worker)
    cell.submit("early", prompt(120, 13), params(2), priority=-1, tenant="b")
    old_at = cell.choice("old").cursor
    while cell.choice("early").cursor < 100:
        cell.step(worker)

    assert 0 < cell.choice("old").cursor - old_at < 100


def test_an_earlier_class_goes_before_who_was_swapped_out() -> None:
    """Who was swapped resumes before anybody of its own class or a later one."""
    cell = starved()
    cell.run(lambda: bool(cell.state.counts["swapped_out_blocks"]))
    swapped = cell.state.swapped.head()
    assert swapped is not None
    for name, priority in (("same", 0), ("earlier", -1)):
        cell.submit(name, prompt(20, 700 + 50 * priority), params(4), priority=priority)
    cell.run(lambda: cell.choice("same").phase is not Phase.WAITING)

    begun = [name for name in cell.ordered if name in ("same", "earlier")]
    resumed = [delta.version for delta in cell.deltas for swap in delta.swap_ins if swap.sequence == swapped.handle]
    first = {
        resident.request_id: delta.version for delta in cell.deltas for resident in delta.added if resident.cursor == 0
    }
    assert begun == ["earlier", "same"]
    assert first["earlier"] <= min(resumed) <= first["same"]
