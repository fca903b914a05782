"""Expositions of several services as one."""

from collections import Counter

import pytest
from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as CounterMetric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from libs.contracts.trace_records import Arrived
from libs.runtime import ring as ring_module
from libs.runtime.metrics import Alias, ProcessFacts, expose, join, process_metrics
from libs.runtime.ring import Ring
from libs.runtime.telemetry import Export


def registry(cell: str) -> CollectorRegistry:
    made = CollectorRegistry()
    CounterMetric("headrace:things", "Things.", ("engine",), registry=made).labels(cell).inc(3)
    Gauge(f"headrace:only_{cell}", "Of one alone.", registry=made).set(1)
    Histogram("headrace:took_seconds", "Time.", ("engine",), buckets=(1, 2), registry=made).labels(cell).observe(
        1.5, {"trace_id": "ab" * 16}
    )
    return made


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_family_of_several_services_is_told_once_with_all_samples(openmetrics: bool) -> None:
    """Strict parsers refuse a family that begins twice."""
    texts = [expose(registry(cell), openmetrics=openmetrics) for cell in ("c0", "c1")]

    families = list((parse_openmetrics if openmetrics else parse_text)(join(texts, openmetrics=openmetrics)))

    names = [family.name for family in families]
    assert len(names) == len(set(names)) and {"headrace:only_c0", "headrace:only_c1"} <= set(names)
    things = next(family for family in families if family.name.startswith("headrace:things"))
    values = {sample.labels["engine"]: sample.value for sample in things.samples if sample.name.endswith("_total")}
    assert values == {"c0": 3, "c1": 3}


def test_openmetrics_keeps_exemplars_and_one_end() -> None:
    """A slow bucket leads to its trace."""
    text = join([expose(registry(cell), openmetrics=True) for cell in ("c0", "c1")], openmetrics=True)

    assert text.count("# EOF") == 1 and text.endswith("# EOF\n")
    assert text.count('# {trace_id="' + "ab" * 16 + '"}') == 2


def test_nothing_is_still_an_exposition() -> None:
    """Of a process that has no metrics yet."""
    assert join([""], openmetrics=False) == "" and join(["# EOF\n"], openmetrics=True) == "# EOF\n"


def test_an_older_name_tells_the_same_samples() -> None:
    """Of what was observed once."""
    made = CollectorRegistry()
    family = Histogram("vllm:new_seconds", "Time.", ("engine",), buckets=(1, 2), registry=made)
    made.register(Alias("vllm:old_seconds", "As new.", family))
    family.labels("c0").observe(1.5)

    for name in ("vllm:new_seconds", "vllm:old_seconds"):
        assert made.get_sample_value(f"{name}_bucket", {"engine": "c0", "le": "2.0"}) == 1
        assert made.get_sample_value(f"{name}_sum", {"engine": "c0"}) == 1.5


def test_lost_records_are_told_by_the_process_that_lost_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dashboard sees whose disk is slow."""
    monkeypatch.setattr(ring_module, "MOST_PENDING", 2)
    ring = Ring(lambda: None)
    registry = process_metrics(ProcessFacts("tokenizer", "tokenizer-0", ring, Export()))
    labels = {"service": "tokenizer", "instance": "tokenizer-0"}
    assert registry.get_sample_value("headrace:trace_records_dropped_total", labels) == 0

    for number in range(5):
        ring.put(Arrived("r", number, 1))

    assert registry.get_sample_value("headrace:trace_records_dropped_total", labels) == 3


def test_what_a_part_counts_is_told_by_its_event() -> None:
    """As it stands when somebody asks: a part goes on counting."""
    counts = Counter[str]()
    registry = process_metrics(ProcessFacts("tokenizer", "t0", Ring(), Export(), requests=counts))
    counts["rejected"] += 2

    labels = {"service": "tokenizer", "instance": "t0", "part": "requests", "event": "rejected"}
    assert registry.get_sample_value("headrace:process_events_total", labels) == 2
