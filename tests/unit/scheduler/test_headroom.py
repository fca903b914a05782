"""A tenant leaves an eighth of places and blocks to others, and takes no more than that away from them."""

from services.scheduler.choice import Phase
from services.scheduler.chunk_size import FIRST_TOKENS
from services.scheduler.headroom import flooding
from services.scheduler.lately import WINDOW_S, Lately
from services.scheduler.reasons import Reason
from tests.unit.scheduler.cell import GATEWAY, Cell, hybrid, params, prompt

PLACES = 16


def flooded(cell: Cell, requests: int, tokens: int = 4, answer_tokens: int = 40) -> Cell:
    """Two tenants have been here, and one sends much."""
    cell.submit("before", prompt(4), params(1), tenant="quiet")
    cell.run()
    cell.deliver("before")
    for number in range(requests):
        cell.submit(f"f{number}", prompt(tokens, 20 * number), params(answer_tokens), tenant="flood")
    return cell


def running(cell: Cell, tenant: str) -> int:
    return sum(choice.sequence.tenant == tenant for choice in cell.state.running.values())


def test_a_flood_leaves_places_to_others() -> None:
    """Who comes then begins at once; the flood goes on when one of its own has ended."""
    cell = flooded(hybrid(max_running=PLACES, blocks=512), 30)

    assert running(cell, "flood") == 14
    assert cell.choice("f14").reason is Reason.TENANT_FULL and cell.choice("f15").reason is Reason.BEHIND_OLDER
    cell.submit("q", prompt(4, 900), params(4), tenant="quiet")
    assert cell.choice("q").phase is Phase.PREFILLING
    cell.cancel("f0")
    cell.run(until=lambda: cell.choice("f14").phase is not Phase.WAITING)
    assert running(cell, "flood") == 14


def test_a_flood_leaves_blocks_to_others() -> None:
    """However few places it needs for taking them."""
    cell = flooded(hybrid(max_running=PLACES, blocks=64), 6, tokens=200, answer_tokens=4)

    assert cell.state.memory.pool.free_blocks >= 8 - 1
    assert cell.choice("f4").reason is Reason.TENANT_FULL
    cell.submit("q", prompt(40, 900), params(4), tenant="quiet")
    assert cell.choice("q").phase is Phase.PREFILLING


def test_who_never_met_another_tenant_has_everything() -> None:
    """No place is kept for nobody."""
    cell = hybrid(max_running=PLACES, blocks=512)
    for number in range(20):
        cell.submit(f"f{number}", prompt(4, 20 * number), params(40))

    assert running(cell, "t") == PLACES
    assert cell.choice("f16").reason is Reason.MAX_RUNNING


def test_a_tenant_that_is_passed_over_holds_up_nobody_and_ends_well() -> None:
    """Another's requests go on while it has its part, and at the end nothing is left of either."""
    cell = flooded(hybrid(max_running=8, blocks=512), 20)
    for number in range(20):
        cell.submit(f"q{number}", prompt(4, 500 + 20 * number), params(4), tenant="quiet")
        if number == 10:
            cell.cancel("f9")
    cell.run()
    for request_id in list(cell.state.requests):
        cell.deliver(request_id)
    cell.run()

    assert cell.is_clean and not cell.state.queue.held()


def test_who_comes_to_wait_is_lifted_to_a_tenant_that_is_passed_over() -> None:
    """It waits as well, if for something else."""
    cell = flooded(hybrid(max_running=PLACES, blocks=512), 30)
    cell.submit("q", prompt(4, 900), params(1), tenant="quiet")
    for _ in range(6):
        cell.step(next(iter(cell.workers.values())))
    flood = cell.choice("f20").share
    assert flood.is_held and flood.served > cell.choice("q").share.served
    cell.submit("n", prompt(4, 700), params(4), tenant="new")

    assert cell.choice("n").share.served >= flood.served


def test_places_are_kept_for_what_another_tenant_could_use_lately() -> None:
    """Up to an equal part, and until it has not wanted them for a while."""
    cell = hybrid(max_running=PLACES, blocks=512)
    for number in range(5):
        cell.submit(f"q{number}", prompt(4, 900 + 20 * number), params(1), tenant="quiet")
    cell.submit("f", prompt(4), params(1), tenant="flood")
    for number in range(5, 10):
        cell.submit(f"q{number}", prompt(4, 900 + 20 * number), params(1), tenant="quiet")
    cell.run()
    assert cell.state.wanted["quiet"].most(cell.now_s) > 4
    for request_id in list(cell.state.requests):
        cell.deliver(request_id)
    kept = min(cell.state.wanted["quiet"].most(cell.now_s), PLACES // 2)
    for number in range(20):
        cell.submit(f"f{number}", prompt(4, 20 * number), params(400), tenant="flood")
    assert running(cell, "flood") == PLACES - kept

    for worker in cell.state.workers.values():
        worker.heard_s = cell.now_s + 3 * WINDOW_S
    cell.state.gateways[GATEWAY].heard_s = cell.now_s + 3 * WINDOW_S
    cell.pass_s(2.5 * WINDOW_S)
    assert running(cell, "flood") == 14


def test_what_was_wanted_is_forgotten_after_a_window_or_two() -> None:
    """The greater of the present window and the one before it."""
    lately = Lately(100.0)
    lately.note(3, 101.0)
    lately.note(2, 102.0)
    assert lately.most(100.0 + WINDOW_S - 1) == 3
    lately.note(1, 100.0 + WINDOW_S)
    assert lately.most(100.0 + 2 * WINDOW_S - 1) == 3
    assert lately.most(100.0 + 2 * WINDOW_S) == 1
    assert lately.most(100.0 + 9 * WINDOW_S) == 0


def crowded(step_s: float, token_s: float) -> Cell:
    """Three tenants that ask for little, a fourth that floods, and a worker whose steps take so long."""
    cell = hybrid(max_running=32, blocks=1024, itl_target_s=0.1)
    (worker,) = cell.workers.values()
    worker.step_s, worker.token_s = step_s, token_s
    for tenant in ("a", "b", "c"):
        for number in range(5):
            cell.submit(f"{tenant}{number}", prompt(4, 20 * number), params(40), tenant=tenant)
    cell.run()
    for number in range(40):
        cell.submit(f"f{number}", prompt(400, 1000 * number), params(40), tenant="flood")
    return cell


def test_a_flood_has_many_places_only_while_steps_stay_short() -> None:
    """Three tenths of the ITL target hold its rows and a short chunk: nobody else feels much of it, nor has to wait."""
    cell = crowded(0.01, 0.001)

    cell.run(until=lambda: cell.choice("f1").generated > 20)
    assert 5 <= running(cell, "flood") <= 13
    cell.submit("q", prompt(4, 900), params(4), tenant="a")
    assert cell.choice("q").phase is Phase.PREFILLING
    cell.run(until=lambda: cell.choice("f30").generated > 0)
    assert running(cell, "flood") <= 13


def test_where_every_step_is_long_a_flood_makes_it_half_longer_at_most() -> None:
    """A large model's step takes its time with one row; many beside it cost little."""
    cell = crowded(0.2, 0.001)

    cell.run(until=lambda: cell.choice("f1").generated > 0)

    assert running(cell, "flood") > 20


def test_a_flood_s_prompts_move_in_short_chunks_behind_all_others() -> None:
    """Who comes has the next chunk, but for a part of the oldest prompt; where all flood, chunks are as ever."""
    cell = crowded(0.01, 0.001)
    cell.run(until=lambda: cell.choice("f1").generated > 0)
    before = len(cell.deltas)
    cell.submit("q", prompt(20, 900), params(4), tenant="a")
    cell.run(until=lambda: cell.choice("q").generated > 0)

    chunks = [
        {chunk.sequence: chunk.tokens for chunk in delta.chunks} for delta in cell.deltas[before:] if delta.chunks
    ]
    own = cell.choice("q").handle
    assert next(chunk for chunk in chunks if own in chunk)[own] == 20
    assert all(sum(chunk.values()) <= 20 for chunk in chunks if own not in chunk)

    even = hybrid(max_running=32, blocks=1024, itl_target_s=0.1)
    for number in range(40):
        for tenant in ("a", "b"):
            even.submit(f"{tenant}{number}", prompt(400, 1000 * number), params(4), tenant=tenant)
    even.run(until=lambda: even.choice("a1").generated > 0)
    assert not flooding(even.state, even.now_s)
    assert max(sum(chunk.tokens for chunk in delta.chunks) for delta in even.deltas) >= FIRST_TOKENS
