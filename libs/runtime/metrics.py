"""All services' metrics in one exposition: who is scraped asks the others over the broker and joins the answers."""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from libs.contracts import flow
from libs.runtime.bus import Bus, Subscription
from libs.runtime.ring import Ring
from libs.runtime.telemetry import Export

OPENMETRICS = b"openmetrics"
END = "# EOF\n"
MOST_SERVICES = 1000  # that can answer one scrape
WITHIN_S = 0.15
PROCESS = ("service", "instance")
FAMILY = re.compile(r"^# HELP (\S+) ", re.MULTILINE)

__all__ = ["OPENMETRICS_TYPE", "Alias", "ProcessFacts", "expose", "gather", "join", "process_metrics", "serve_metrics"]


class Alias(Collector):
    """The samples of a family under another name as well: what is observed is observed once."""

    def __init__(self, name: str, text: str, family: Collector) -> None:
        self._name, self._text, self._family = name, text, family

    def collect(self) -> Iterable[Metric]:
        for metric in self._family.collect():
            alias = Metric(self._name, self._text, metric.type)
            alias.samples = [
                sample._replace(name=self._name + sample.name.removeprefix(metric.name)) for sample in metric.samples
            ]
            yield alias


class ProcessFacts(Collector):
    """What every process has to tell: what of its traces found no room, and what its parts count by event."""

    def __init__(self, service: str, instance: str, ring: Ring, export: Export, **counts: Mapping[str, int]) -> None:
        """`counts` are those of its parts, by a part's name; they are read whenever somebody asks."""
        self._labels, self._ring, self._export, self._counts = (service, instance), ring, export, counts

    def collect(self) -> Iterable[Metric]:
        yield self._counter("headrace:trace_records_dropped", "Records that the trace ring lost.", self._ring.dropped)
        yield self._counter("headrace:trace_spans_dropped", "Spans that no collector got.", self._export.dropped)
        names = (*PROCESS, "part", "event")
        events = CounterMetricFamily("headrace:process_events", "What a part of a process counted.", labels=names)
        for part, counts in self._counts.items():
            for event, count in sorted(counts.items()):
                events.add_metric((*self._labels, part, event), count)
        yield events

    def _counter(self, name: str, text: str, value: int) -> Metric:
        family = CounterMetricFamily(name, text, labels=PROCESS)
        family.add_metric(self._labels, value)
        return family


def process_metrics(facts: ProcessFacts) -> CollectorRegistry:
    """Of a process that has nothing else to tell."""
    registry = CollectorRegistry()
    registry.register(facts)
    return registry


def expose(registry: CollectorRegistry, *, openmetrics: bool) -> str:
    """The text of a registry; only OpenMetrics has room for exemplars."""
    if openmetrics:
        # Unescaped: by default this format, and it alone, turns our colons into underscores.
        return str(generate_openmetrics(registry, escaping=ALLOWUTF8), "utf-8")  # type: ignore[no-untyped-call]
    return generate_latest(registry).decode()


async def serve_metrics(bus: Bus, registry: CollectorRegistry) -> Subscription:
    """Answer each scrape that another process passes on."""

    async def answer(payload: bytes, traceparent: str) -> bytes:
        return expose(registry, openmetrics=payload == OPENMETRICS).encode()

    return await bus.serve(flow.METRICS_SUBJECT, answer)


async def gather(bus: Bus, own: CollectorRegistry, *, openmetrics: bool) -> str:
    """This process's metrics and those of all services that answer in time; its own while the broker is away."""
    texts = [expose(own, openmetrics=openmetrics)]
    if bus.connected:
        question = OPENMETRICS if openmetrics else b""
        answers = await bus.scatter(flow.METRICS_SUBJECT, question, answers=MOST_SERVICES, within_s=WITHIN_S)
        texts += [answer.decode() for answer in answers]
    return join(texts, openmetrics=openmetrics)


def join(texts: Iterable[str], *, openmetrics: bool) -> str:
    """Expositions as one: a family that several have keeps one head, with the samples of all below it."""
    families: dict[str, tuple[str, list[str]]] = {}
    for text in texts:
        for name, head, samples in _families(text.removesuffix(END)):
            families.setdefault(name, (head, []))[1].append(samples)
    joined = "".join(head + "".join(samples) for head, samples in families.values())
    return joined + END if openmetrics else joined


def _families(text: str) -> Iterable[tuple[str, str, str]]:
    """(name, HELP and TYPE lines, samples) of each family."""
    starts = [match.start() for match in FAMILY.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        lines = text[start:end].splitlines(keepends=True)
        head = [line for line in lines if line.startswith("#")]
        yield lines[0].split()[2], "".join(head), "".join(line for line in lines if not line.startswith("#"))
