"""All services' metrics in one exposition: who is scraped asks the others over the broker and joins the answers."""

import re
from collections.abc import Iterable
from itertools import pairwise

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from libs.contracts import flow
from libs.runtime.bus import Bus, Subscription

OPENMETRICS = b"openmetrics"
END = "# EOF\n"
MOST_SERVICES = 1000  # that can answer one scrape
WITHIN_S = 0.15
FAMILY = re.compile(r"^# HELP (\S+) ", re.MULTILINE)

__all__ = ["OPENMETRICS_TYPE", "expose", "gather", "join", "serve_metrics"]


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
