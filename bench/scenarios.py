"""The scenarios as plain data, and the requests they are made of. Pure: the same seed gives the same prompts to all."""

import random
from dataclasses import dataclass
from typing import Final

LOWEST_ID: Final = 1000  # below it lie special tokens and single bytes, which some servers treat apart


@dataclass(frozen=True, slots=True)
class Late:
    """One more request, sent when every other stream has given `after_tokens`."""

    prompt_tokens: int
    new_tokens: int
    after_tokens: int


@dataclass(frozen=True, slots=True)
class Poisson:
    """Arrivals at random times, of `sizes` in random order. They are drawn once for all runs, since how many fall
    together decides more than who serves them. A request is good when it meets both targets.
    """

    rate_s: float
    sizes: tuple[tuple[int, int], ...]  # (prompt, new) tokens
    ttft_target_ms: float
    tpot_target_ms: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """`requests` of one size, at most `concurrency` at a time; the first `shared_tokens` of a prompt are the same.

    `turns` is how often each side runs it in a round: more often where it is short and has figures of few requests.
    """

    name: str
    title: str
    requests: int
    concurrency: int
    prompt_tokens: int
    new_tokens: int
    shared_tokens: int = 0
    late: Late | None = None
    poisson: Poisson | None = None
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """One request. `at_s` is when it is sent, from the start; 0 where a free place decides."""

    prompt_ids: tuple[int, ...]
    new_tokens: int
    at_s: float = 0.0


SCENARIOS: Final = (
    Scenario("S1", "one stream, 128 in, 128 out", 4, 1, 128, 128, turns=2),
    Scenario("S2", "one prompt of 1,024, 1 out", 4, 1, 1024, 1, turns=2),
    Scenario("S3", "8 at a time, 32 requests, 128 in, 128 out", 32, 8, 128, 128, turns=2),
    Scenario("S4", "32 at a time, 96 requests, 128 in, 128 out", 96, 32, 128, 128),
    Scenario("S5", "4 at a time, 24 requests, 768 shared + 32 own in, 32 out", 24, 4, 800, 32, 768, turns=2),
    Scenario(
        "S6", "4 streams, 128 in, 256 out; a prompt of 1,800 arrives", 4, 4, 128, 256, late=Late(1800, 1, 64), turns=2
    ),
    Scenario(
        "S7",
        "24 Poisson arrivals of mixed lengths, 1 a second",
        24,
        24,
        0,
        0,
        poisson=Poisson(1.0, ((32, 64), (128, 128), (512, 64), (1024, 32)), ttft_target_ms=1000, tpot_target_ms=60),
    ),
)
SMOKE: Final = Scenario("smoke", "one stream, 16 in, 8 out", 1, 1, 16, 8)
WARM_UP: Final = Scenario("warm-up", "4 at a time, 4 requests, 128 in, 16 out", 4, 4, 128, 16)


def named(names: str) -> tuple[Scenario, ...]:
    """The scenarios of a comma-separated list, in its order; all for an empty one. KeyError names a wrong one."""
    known = {scenario.name: scenario for scenario in (*SCENARIOS, SMOKE)}
    return tuple(known[name.strip()] for name in names.split(",")) if names else SCENARIOS


def jobs(scenario: Scenario, vocab_size: int, seed: int) -> list[Job]:
    """The requests of one run in their order, the late one last. No two prompts share more than `shared_tokens`."""
    draw = random.Random(f"{scenario.name} {seed}")
    if scenario.poisson:
        sizes = _arrivals(scenario.poisson, scenario.requests, random.Random(scenario.name))
        return [Job(_ids(prompt_tokens, vocab_size, draw), new, at_s) for at_s, prompt_tokens, new in sizes]
    shared = _ids(scenario.shared_tokens, vocab_size, draw)
    own = scenario.prompt_tokens - scenario.shared_tokens
    made = [Job(shared + _ids(own, vocab_size, draw), scenario.new_tokens) for _ in range(scenario.requests)]
    if scenario.late:
        made.append(Job(_ids(scenario.late.prompt_tokens, vocab_size, draw), scenario.late.new_tokens))
    return made


def _arrivals(poisson: Poisson, requests: int, draw: random.Random) -> list[tuple[float, int, int]]:
    """When, tokens in, tokens out. Every size comes equally often. If the last arrival of a Poisson process is known,
    any moment before it is as likely as another for the rest.
    """
    sizes = [poisson.sizes[n % len(poisson.sizes)] for n in range(requests)]
    draw.shuffle(sizes)
    end_s = requests / poisson.rate_s
    times_s = [*sorted(draw.uniform(0, end_s) for _ in sizes[1:]), end_s]
    return [(at_s, *size) for at_s, size in zip(times_s, sizes, strict=True)]


def _ids(count: int, vocab_size: int, draw: random.Random) -> tuple[int, ...]:
    return tuple(draw.randrange(LOWEST_ID, vocab_size) for _ in range(count))
