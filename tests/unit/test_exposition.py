"""What services tell of themselves is taken by every scraper: both formats, one service and all of them together."""

from collections.abc import Sequence

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from libs.contracts.trace_records import Served
from libs.runtime.metrics import ProcessFacts, expose, join, process_metrics
from libs.runtime.ring import Ring
from libs.runtime.telemetry import Export
from services.scheduler.events import Started
from services.scheduler.metrics import Metrics as SchedulerMetrics
from tests.unit.exposition import complaints
from tests.unit.gateway.conftest import running_gateway
from tests.unit.gateway.test_generate import play
from tests.unit.scheduler.cell import hybrid, params, prompt


def scheduled() -> SchedulerMetrics:
    """Of a cell that served two requests."""
    cell = hybrid()
    metrics = SchedulerMetrics(cell.state)
    for name in ("a", "b"):
        cell.submit(name, prompt(40), params(4))
        cell.run()
    for command in (command for turn in cell.commands for command in turn):
        if isinstance(command, Started):
            metrics.started(command)
    return metrics


async def texts(*, openmetrics: bool) -> tuple[list[str], str]:
    """The expositions of all services after some work, and the trace id of a request among it."""
    async with running_gateway() as gateway:
        call = gateway.complete(max_tokens=40, stream=True)
        await play(gateway, call, [*b"hello"], "length")
        await call.whole()
        (served,) = gateway.service.ring.take()
        assert isinstance(served, Served)
        registries = [
            gateway.service.metrics.registry,
            scheduled().registry,
            *(
                process_metrics(ProcessFacts(name, f"{name}-0", Ring(), Export(), bus={"malformed_message": 1}))
                for name in ("tokenizer", "decode_worker", "prefill_worker")
            ),
        ]
        return [expose(registry, openmetrics=openmetrics) for registry in registries], served.trace_id


@pytest.mark.parametrize("openmetrics", [False, True])
async def test_every_exposition_is_clean_alone_and_joined(openmetrics: bool) -> None:
    """Also for the parsers of the client library."""
    alone, _ = await texts(openmetrics=openmetrics)

    for text in [*alone, join(alone, openmetrics=openmetrics)]:
        assert complaints(text, openmetrics=openmetrics) == []
        assert list((parse_openmetrics if openmetrics else parse_text)(text))


async def test_slow_buckets_lead_to_the_trace_of_a_request_that_fell_into_them() -> None:
    """By its id, which the trace ring knows as well; the plain format has no room for it."""
    alone, trace_id = await texts(openmetrics=True)
    plain, _ = await texts(openmetrics=False)

    led = [line for line in join(alone, openmetrics=True).splitlines() if f'trace_id="{trace_id}"' in line]

    assert {line.partition("_bucket")[0] for line in led} == {
        "vllm:time_to_first_token_seconds",
        "vllm:e2e_request_latency_seconds",
    }
    assert "trace_id" not in join(plain, openmetrics=False)


BAD: Sequence[tuple[str, str]] = (
    ("# HELP a A.\n# TYPE a counter\na 1\n", "counter"),
    ("# TYPE a gauge\na 1\n", "no help"),
    ("# HELP a A.\n# TYPE a gauge\na 1\na 2\n", "twice"),
    ("# HELP a A.\n# TYPE a gauge\nb 1\n", "no sample of"),
    ("# HELP a A.\n# TYPE a gauge\na 1\n# HELP a A.\n", "begins twice"),
    ('# HELP a A.\n# TYPE a histogram\na_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\na_count 1\na_sum 1\n', "ascend"),
    ('# HELP a A.\n# TYPE a histogram\na_bucket{le="1"} 1\na_count 1\na_sum 1\n', "hold all"),
    ("# HELP a A.\n# TYPE a gauge\na one two\n", "not a line"),
)


@pytest.mark.parametrize(("text", "complaint"), BAD)
def test_what_scrapers_refuse_is_complained_about(text: str, complaint: str) -> None:
    """The check would not be one if it took anything."""
    assert any(complaint in told for told in complaints(text, openmetrics=False))
