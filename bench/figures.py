"""What is told of a run, and of many: pure functions from times to figures, medians and ratios."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench.client import BenchError
from bench.load import Outcome
from bench.scenarios import Poisson, Scenario

CONFIDENCE: Final = 0.9  # that an interval holds the median of all such values
QUANTILES: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)  # of the gaps


@dataclass(frozen=True, slots=True)
class Kind:
    """How to read a figure; `better` is "low" or "high"."""

    title: str
    unit: str
    better: str


KINDS: Final[Mapping[str, Kind]] = {
    "ttft_ms": Kind("time to first token", "ms", "low"),
    "tpot_ms": Kind("time per later token", "ms", "low"),
    "tok_s": Kind("tokens out", "1/s", "high"),
    "prompt_tok_s": Kind("prompt tokens", "1/s", "high"),
    "total_s": Kind("all requests", "s", "low"),
    "itl_p50_ms": Kind("gap between tokens, median", "ms", "low"),
    "itl_p99_ms": Kind("gap between tokens, p99", "ms", "low"),
    "itl_max_ms": Kind("gap between tokens, longest", "ms", "low"),
    "good_share": Kind("requests within both targets", "", "high"),
    "good_s": Kind("requests within both targets", "1/s", "high"),
}


def quantile(values: Iterable[float], share: float) -> float:
    """The value at `share` of the sorted values, linear between neighbours. ValueError for none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("a quantile of nothing")
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median_interval(values: Iterable[float]) -> tuple[float, float]:
    """The narrowest pair of the sorted values, as far from either end, that holds the median of what they are drawn
    from with CONFIDENCE; the extremes where no pair does. Nothing is supposed of the distribution (David and Nagaraja,
    Order Statistics, 7.1). ValueError for none.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("an interval of nothing")
    count, cut = len(ordered), 0
    outside = 2**-count  # the chance that the median lies below the value at `cut`
    while cut + 1 < count - 1 - cut:
        outside += math.comb(count, cut + 1) * 2**-count
        if 1 - 2 * outside < CONFIDENCE:
            break
        cut += 1
    return ordered[cut], ordered[-1 - cut]


def gaps_ms(arrivals_s: Sequence[float]) -> list[float]:
    return [(after - before) * 1e3 for before, after in pairwise(arrivals_s)]


def gaps_between_ms(arrivals_s: Sequence[float], start_s: float, end_s: float) -> list[float]:
    """Gaps of which any part lies between the two times, at their whole length: a stall may begin before."""
    return [(b - a) * 1e3 for a, b in pairwise(arrivals_s) if b > start_s and a < end_s]


def figures(scenario: Scenario, outcome: Outcome) -> dict[str, float]:
    """The figures of one run, by the names of KINDS. Requests one at a time repeat each other, and their middle is the
    median. Those that meet have long and short waits by whom they meet: where about half are long, a median tells of
    the one half in one run and of the other in the next, and a mean of both.
    """
    replies = outcome.replies
    middle = statistics.median if scenario.concurrency == 1 else statistics.fmean
    found = {"ttft_ms": middle([reply.ttft_ms for reply in replies])}
    new_tokens = sum(reply.new_tokens for reply in replies)
    if scenario.late and outcome.late:
        start_s, end_s = outcome.late.sent_s, outcome.late.arrivals_s[0]
        during = [gap for reply in replies for gap in gaps_between_ms(reply.arrivals_s, start_s, end_s)]
        if not during:
            raise BenchError("every stream had ended before the late request came")
        return {"ttft_ms": outcome.late.ttft_ms, "itl_p99_ms": quantile(during, 0.99), "itl_max_ms": max(during)}
    if scenario.new_tokens == 1:
        return found | {"prompt_tok_s": 1e3 * scenario.prompt_tokens / found["ttft_ms"]}
    found["tpot_ms"] = middle([reply.tpot_ms for reply in replies])
    if scenario.poisson:
        return found | goodput(scenario.poisson, outcome)
    if scenario.shared_tokens:
        return {"total_s": outcome.wall_s, **found}
    found["tok_s"] = new_tokens / outcome.wall_s
    if scenario.concurrency > 1:
        gaps = [gap for reply in replies for gap in gaps_ms(reply.arrivals_s)]
        found |= {"itl_p50_ms": quantile(gaps, 0.5), "itl_p99_ms": quantile(gaps, 0.99)}
    return found


def goodput(poisson: Poisson, outcome: Outcome) -> dict[str, float]:
    """Requests that met both targets, of all and by the second."""
    good = [r for r in outcome.replies if r.ttft_ms <= poisson.ttft_target_ms and r.tpot_ms <= poisson.tpot_target_ms]
    return {"good_share": len(good) / len(outcome.replies), "good_s": len(good) / outcome.wall_s}


def gap_quantiles_ms(outcome: Outcome) -> list[float]:
    """The gaps of all streams at QUANTILES; empty where no stream has two tokens."""
    gaps = [gap for reply in outcome.replies for gap in gaps_ms(reply.arrivals_s)]
    return [round(quantile(gaps, share), 3) for share in QUANTILES] if gaps else []


def differ(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The largest relative difference of two sets of the same positive values; 0.1 is ten per cent."""
    return max(max(one[name], other[name]) / min(one[name], other[name]) - 1 for name in one)


def advantage(kind: Kind, ours: float, theirs: float) -> float | None:
    """How many times better ours is, above 1 for better in either direction; None where a zero makes it meaningless."""
    if ours <= 0 or theirs <= 0:
        return None
    return theirs / ours if kind.better == "low" else ours / theirs


def reached(kind: Kind, limit: float, value: float) -> float | None:
    """The fraction of the limit, 1 at the limit."""
    if limit <= 0 or value <= 0:
        return None
    return limit / value if kind.better == "low" else value / limit
