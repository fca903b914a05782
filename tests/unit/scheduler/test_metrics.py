"""The scheduler's metrics move as their names say."""

from functools import partial

from libs.contracts.messages import StepResult
from services.scheduler.events import Started
from services.scheduler.metrics import Metrics
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt

LABELS = {"model_name": "m", "engine": "c0"}


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(name, LABELS | labels)
    assert found is not None, name
    return found


def has_token(cell: Cell, request_id: str) -> bool:
    return cell.choice(request_id).generated > 0


def started(cell: Cell) -> list[Started]:
    return [command for commands in cell.commands for command in commands if isinstance(command, Started)]


def test_kv_usage_is_the_share_of_held_blocks() -> None:
    """Under the newer name and both older ones; 0 again once nobody holds any, whatever stays cached."""
    cell = hybrid(blocks=20)
    metrics = Metrics(cell.state)
    cell.submit("r", prompt(64), params(8))
    cell.run(until=lambda: bool(cell.choice("r").generated))
    held = cell.blocks[2]

    for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc", "gpu_cache_usage_factor"):
        assert value(metrics, f"vllm:{name}") == held / 20 > 0
    assert value(metrics, "vllm:cache_config_info", block_size="16", num_gpu_blocks="20") == 1

    cell.run()
    cell.deliver("r")
    cell.run()
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0
    assert value(metrics, "headrace:kv_blocks_cached") == cell.blocks[1] > 0


def test_prefix_hits_are_counted_in_tokens() -> None:
    """Of all that were looked up, those that were found."""
    cell = hybrid()
    metrics = Metrics(cell.state)
    for name in ("first", "second"):
        cell.submit(name, prompt(48), params(2))
        cell.run()

    assert value(metrics, "vllm:prefix_cache_queries_total") == 96
    assert value(metrics, "vllm:prefix_cache_hits_total") == 47


def test_preemptions_are_counted() -> None:
    """Once for each time that a request gives way."""
    cell = hybrid(blocks=8)
    metrics = Metrics(cell.state)
    cell.submit("old", prompt(40), params(60))
    cell.submit("young", prompt(40, first=5000), params(60))
    cell.run()

    assert value(metrics, "vllm:num_preemptions_total") == cell.state.counts["preempted_recompute"] > 0


def test_a_request_starts_once_with_its_wait_and_its_prefill() -> None:
    """In both roles; the second waits while it may not run."""
    for cell in (hybrid(max_running=1), disaggregated(max_running=1)):
        metrics = Metrics(cell.state)
        for name in ("a", "b"):
            cell.submit(name, prompt(40, first=100 if name == "a" else 900), params(4))
        cell.run(until=partial(has_token, cell, "a"))
        cell.pass_while_alive(0.5)
        cell.run()

        for command in started(cell):
            metrics.started(command)
        assert [command.request_id for command in started(cell)] == ["a", "b"]
        assert started(cell)[1].queue_s >= 0.5 > started(cell)[0].queue_s
        assert value(metrics, "vllm:request_queue_time_seconds_count") == 2
        assert value(metrics, "vllm:request_prefill_time_seconds_count") == 2


def test_steps_are_counted_by_their_tokens() -> None:
    """An empty step, which only confirms a removal, is none."""
    cell = hybrid()
    metrics = Metrics(cell.state)
    worker = next(iter(cell.workers.values()))
    cell.submit("r", prompt(40), params(3))
    while sent := worker.boundary():
        for message in sent:
            cell.turn(message)
            if isinstance(message, StepResult):
                metrics.step(message)

    assert value(metrics, "vllm:iteration_tokens_total_sum") == 40 + 2
    assert value(metrics, "headrace:step_seconds_count") == 3
