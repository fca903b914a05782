"""What `promtool check metrics` would complain about, for the text format and OpenMetrics; a parser of our own."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*?)\})? (\S+)(?: # \{(.*?)\} \S+(?: \S+)?)?")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
SUFFIXES = {
    "counter": ("_total", "_created"),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "summary": ("", "_count", "_sum", "_created"),
}
MOST_EXEMPLAR_CHARACTERS = 128
ODD_NAMES = {"vllm:iteration_tokens_total"}  # a histogram that vLLM named like a counter


@dataclass
class Family:
    name: str
    kind: str = ""
    help: str = ""
    samples: dict[tuple[str, str], float] = field(default_factory=dict)  # (name, labels)


def complaints(text: str, *, openmetrics: bool) -> list[str]:
    """Empty for an exposition that every scraper takes."""
    found, families = [], dict[str, Family]()
    lines = text.splitlines()
    if openmetrics and (not lines or lines.pop() != "# EOF"):
        found.append("no end")
    for line in lines:
        found += _take(line, families, openmetrics)
    for family in families.values():
        found += _judge(family, openmetrics)
    return found


def _take(line: str, families: dict[str, Family], openmetrics: bool) -> Iterator[str]:
    """One line goes to the family that began last; what begins twice, or stands elsewhere, is a complaint."""
    if line.startswith("# HELP "):
        _, _, name, told = (*line.split(" ", 3), "")[:4]
        if name in families:
            yield f"{name} begins twice"
        families[name] = Family(name, help=told)
    elif line.startswith("# TYPE "):
        _, _, name, kind = line.split(" ")
        family = families.setdefault(name, Family(name))
        if family is not next(reversed(families.values())) or family.samples:
            yield f"the type of {name} stands elsewhere"
        family.kind = kind
    elif match := SAMPLE.fullmatch(line):
        yield from _add(match, families, openmetrics)
    else:
        yield f"not a line: {line}"


def _add(match: re.Match[str], families: dict[str, Family], openmetrics: bool) -> Iterator[str]:
    name, labels, value, exemplar = match.groups()
    family = next(reversed(families.values()), Family(""))
    base = family.name if openmetrics or family.kind != "counter" else family.name.removesuffix("_total")
    if name not in {base + suffix for suffix in SUFFIXES.get(family.kind, ("",))}:
        yield f"{name} is no sample of {family.name}, a {family.kind}"
    if (name, labels or "") in family.samples:
        yield f"{name}{{{labels}}} twice"
    if LABEL.sub("", labels or "").strip(","):
        yield f"labels of {name}: {labels}"
    if exemplar is not None:
        if not openmetrics or not name.endswith(("_bucket", "_total")):
            yield f"an exemplar at {name}"
        if sum(map(len, (part for pair in LABEL.findall(exemplar) for part in pair))) > MOST_EXEMPLAR_CHARACTERS:
            yield f"the exemplar of {name} is too long"
    family.samples[name, labels or ""] = float(value)


def _judge(family: Family, openmetrics: bool) -> Iterator[str]:
    if not NAME.fullmatch(family.name):
        yield f"not a name: {family.name}"
    if not family.help:
        yield f"{family.name} has no help"
    if family.kind not in SUFFIXES:
        yield f"{family.name} has no type"
    if family.kind == "counter" and any(value < 0 for value in family.samples.values()):
        yield f"{family.name} is below 0"
    if family.kind == "counter" and family.name.endswith("_total") == openmetrics:
        yield f"{family.name} is a counter by its type, not by its name"
    if family.kind != "counter" and family.name.endswith("_total") and family.name not in ODD_NAMES:
        yield f"{family.name} is a counter by its name, not by its type"
    if family.kind == "histogram":
        yield from _judge_buckets(family)


def _judge_buckets(family: Family) -> Iterator[str]:
    """Cumulative, ascending, and the last one holds all."""
    series: dict[str, list[tuple[float, float]]] = {}
    for (name, labels), value in family.samples.items():
        pairs = dict(LABEL.findall(labels))
        if name.endswith("_bucket"):
            edge = float(pairs.pop("le", "nan"))
            series.setdefault(str(sorted(pairs.items())), []).append((edge, value))
    counts = {
        str(sorted(LABEL.findall(labels))): value
        for (name, labels), value in family.samples.items()
        if name.endswith("_count")
    }
    for labels, buckets in series.items():
        if buckets != sorted(buckets) or [count for _, count in buckets] != sorted(count for _, count in buckets):
            yield f"the buckets of {family.name} do not ascend"
        if buckets[-1] != (float("inf"), counts.get(labels)):
            yield f"the last bucket of {family.name} does not hold all"
