"""When a request is refused because too many wait."""

from typing import Any

import pytest

from services.gateway.crowd import Crowd, Crowded, Standing, ahead_of
from tests.unit.gateway.conftest import running_gateway

PACE_S = 0.1
SHORT_QUEUE = 16
ONE = Standing("t", 0)


def others(count: int, tenant: str = "t", **fields: Any) -> list[Standing]:
    return [Standing(**{"tenant": tenant, "priority": 0, **fields})] * count


def crowd(*, starts: int = 100, max_waiting: int = 500) -> Crowd:
    """One request has started every PACE_S; the last one now, at the time that is returned by `now_s`."""
    built = Crowd(max_waiting=max_waiting, max_wait_s=4.0, short_queue=SHORT_QUEUE)
    for number in range(starts):
        built.started((number + 1) * PACE_S)
    return built


NOW_S = 100 * PACE_S


def test_the_wait_is_what_the_pace_makes_of_the_queue() -> None:
    """Nobody waits for nobody; each that waits costs one start."""
    assert crowd().wait_s(0, NOW_S) == 0
    assert crowd().wait_s(19, NOW_S) == pytest.approx(2.0)


def test_who_would_wait_too_long_is_refused_and_told_how_long() -> None:
    """Just below the limit it may come in."""
    crowd().check(ONE, others(38), NOW_S)
    with pytest.raises(Crowded) as refused:
        crowd().check(ONE, others(41), NOW_S)
    assert refused.value.retry_after_s == pytest.approx(4.2)


def test_a_few_may_always_wait() -> None:
    """However slow they are: with long prompts a short queue takes long, and nothing is gained by refusing it."""
    slow = crowd(starts=1)
    slow.check(ONE, others(SHORT_QUEUE - 1), NOW_S + 1000)
    with pytest.raises(Crowded):
        slow.check(ONE, others(SHORT_QUEUE), NOW_S + 1000)


def test_before_anything_has_started_only_the_number_counts() -> None:
    """And that always does."""
    fresh = crowd(starts=0, max_waiting=50)
    fresh.check(ONE, others(49), 1000)
    with pytest.raises(Crowded):
        fresh.check(ONE, others(50), 1000)


def test_nothing_starting_any_more_is_noticed() -> None:
    """The time since the last start counts before that start is over."""
    stalled = crowd()
    stalled.check(ONE, others(25), NOW_S + 1.0)
    with pytest.raises(Crowded):
        stalled.check(ONE, others(25), NOW_S + 2.0)


def test_a_time_without_anybody_waiting_is_no_pace() -> None:
    """The first to wait after a quiet hour starts the clock."""
    quiet = crowd()
    quiet.joined(0, NOW_S + 3600)
    quiet.started(NOW_S + 3600 + PACE_S)

    assert quiet.wait_s(19, NOW_S + 3600 + PACE_S) == pytest.approx(2.0)


def test_a_flood_makes_its_own_tenant_wait_and_nobody_else() -> None:
    """Tenants take turns: of each other one no more than one's own and one more goes first."""
    flood = others(400, "flood")
    assert ahead_of(Standing("flood", 0), flood) == 400
    assert ahead_of(Standing("quiet", 0), flood) == 1
    assert ahead_of(Standing("quiet", 0), flood + others(2, "quiet") + others(1, "other")) == 2 + 3 + 1
    crowd().check(Standing("quiet", 0), flood, NOW_S)
    with pytest.raises(Crowded):
        crowd().check(Standing("flood", 0), flood, NOW_S)


def test_earlier_classes_and_deadlines_go_first() -> None:
    """Who is behind them waits for all of them, who is before them for none."""
    earlier, timed = others(30, "a", priority=-1), others(30, "b", due_s=50.0)
    assert ahead_of(ONE, earlier + timed + others(5, priority=1)) == 60
    assert ahead_of(Standing("t", -2), earlier + timed) == 0
    assert ahead_of(Standing("t", 0, 49.0), earlier + timed + others(9)) == 30
    assert ahead_of(Standing("t", 0, 51.0), earlier + timed + others(9)) == 60


def test_who_would_wait_beyond_its_timeout_is_refused() -> None:
    """However few wait; it is told when it may be better."""
    timed = others(9, due_s=NOW_S)
    crowd().check(Standing("t", 0, NOW_S + 1.1), timed, NOW_S)
    with pytest.raises(Crowded, match="timeout") as refused:
        crowd().check(Standing("t", 0, NOW_S + 0.9), timed, NOW_S)
    assert refused.value.retry_after_s == pytest.approx(1.0)


def test_beyond_the_limit_there_is_room_for_who_has_less_than_an_equal_part() -> None:
    """A tenant that fills the gateway refuses itself."""
    fresh, flood = crowd(starts=0, max_waiting=50), others(50, "flood")
    with pytest.raises(Crowded):
        fresh.check(Standing("flood", 0), flood, NOW_S)
    fresh.check(Standing("quiet", 0), flood + others(24, "quiet"), NOW_S)
    with pytest.raises(Crowded):
        fresh.check(Standing("quiet", 0), flood + others(25, "quiet"), NOW_S)


async def test_the_gateway_refuses_before_it_reads_the_body() -> None:
    """429 with Retry-After in seconds and milliseconds; whoever leaves makes room."""
    async with running_gateway(max_waiting=2) as gateway:
        calls = [gateway.complete() for _ in range(2)]
        for _ in calls:
            await gateway.taken()
        refused = gateway.complete(prompt=7)

        assert (await refused.json())["error"]["code"] == "overloaded"
        assert refused.status == 429 and 750 <= int(refused.headers["retry-after-ms"]) <= 1500
        assert gateway.metric("headrace:requests_shed_total") == 1
        calls[0].leave()
        await calls[0].task
        at_once = [gateway.complete() for _ in range(3)]
        assert sorted([(await call.json())["error"]["code"] for call in at_once[1:]]) == ["overloaded"] * 2
        late = at_once[0]
        await gateway.taken()
        for call in (calls[1], late):
            call.leave()
            await call.task
