"""The batch promise on the real model: what else runs, and how it is cut, changes no bit of ids or logits.

Every plan below plays the same requests, greedy and seeded; ids and raw float32 logits are compared with those of each
request alone. `make exactness` plays all of them, `make test` a few.
"""

import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pytest

from cli.models import cache_root
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import SamplingParams
from libs.engine.gguf_convert import ensure_default_model
from libs.engine.rows import SampleSpec, StepRow
from tests.engines import opened, settled
from tests.golden import golden_prompts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

BLOCK_TOKENS = 16
IS_WHOLE = os.environ.get("HR_EXACTNESS") == "whole"
DTYPES = ("bfloat16", "float32", *(("int8", "int8w") if IS_WHOLE else ()))
NEW_TOKENS = 64 if IS_WHOLE else 6
LONGEST_PROMPT = 700 if IS_WHOLE else 320
PROMPTS = [p.prompt_ids[:LONGEST_PROMPT] for p in golden_prompts()][:: 1 if IS_WHOLE else 5]
SETTINGS = ({"temperature": 0.0}, {"temperature": 0.9, "seed": 77, "top_p": 0.95, "top_k": 200})

Trace = list[tuple[int, bytes]]  # of each token: its id, and the hash of the logits it was drawn from


@dataclass(frozen=True, slots=True)
class Plan:
    """How the requests are played: so many at once, prompts in chunks of so many tokens."""

    batch: int = 1
    chunk: int = 512
    threads: int = 2
    is_warm: bool = False  # a request finds the full blocks of its prompt written by another one


PLANS = {
    "batches of 7": Plan(batch=7, chunk=100),
    "chunks of 16": Plan(batch=3, chunk=16),
    "warm hit": Plan(batch=2, is_warm=True),
    "1 thread": Plan(batch=7, chunk=200, threads=1),
}
if IS_WHOLE:
    PLANS |= {
        "batches of 2": Plan(batch=2),
        "batches of 32": Plan(batch=32, chunk=64),
        "chunks of 100, alone": Plan(chunk=100),
        "chunks of 512, 32 at once": Plan(batch=32),
    }


class Player:
    """Steps requests on one engine as a scheduler would, and traces what comes out."""

    def __init__(self, engine: Any, plan: Plan) -> None:
        self._engine, self._plan = engine, plan
        self._free = list(range(engine.pool.blocks))
        self._prefixes: dict[int, list[int]] = {}

    def play(self) -> dict[tuple[int, int], Trace]:
        """The trace of every (prompt, setting)."""
        waiting = [(p, s) for s in range(len(SETTINGS)) for p in range(len(PROMPTS))]
        running: list[_Request] = []
        traces = {}
        while waiting or running:
            while waiting and len(running) < self._plan.batch:
                running.append(self._admit(*waiting.pop(0)))
            self._step(running)
            for request in [r for r in running if len(r.trace) == NEW_TOKENS]:
                running.remove(request)
                traces[request.prompt, request.setting] = request.trace
                self._free += request.own
        return traces

    def _admit(self, prompt: int, setting: int) -> "_Request":
        ids = list(PROMPTS[prompt])
        hit = self._prefix(prompt) if self._plan.is_warm else []
        own = [self._free.pop() for _ in range(blocks_for(len(ids) + NEW_TOKENS, BLOCK_TOKENS) - len(hit))]
        self._engine.pool.reset(own)
        return _Request(prompt, setting, ids, len(ids), hit + own, own, BLOCK_TOKENS * len(hit), [])

    def _prefix(self, prompt: int) -> list[int]:
        """Blocks with the prompt's first tokens, written once, in one piece, by nobody in particular."""
        if prompt not in self._prefixes:
            count = (len(PROMPTS[prompt]) - 1) // BLOCK_TOKENS
            blocks = self._prefixes[prompt] = [self._free.pop() for _ in range(count)]
            self._engine.pool.reset(blocks)
            if count:
                self._engine.step([StepRow(PROMPTS[prompt][: BLOCK_TOKENS * count], 0, blocks, None)])
        return self._prefixes[prompt]

    def _step(self, running: "list[_Request]") -> None:
        """One token for each request that decodes, and a chunk of the first one that does not."""
        prefilling = [r for r in running if not r.trace][:1]
        stepped = [r for r in running if r.trace] + prefilling
        rows = [r.row(self._plan.chunk) for r in stepped]
        drawn, logits_RV = self._engine.step_with_logits(rows)
        for request, row, sampled, logits_V in zip(stepped, rows, drawn, logits_RV, strict=True):
            request.cursor += len(row.token_ids)
            if sampled is not None:
                assert not sampled.is_nan
                request.ids.append(sampled.token_id)
                request.trace.append((sampled.token_id, blake2b(logits_V.tobytes(), digest_size=8).digest()))


@dataclass(slots=True)
class _Request:
    prompt: int
    setting: int
    ids: list[int]
    prompt_tokens: int
    table: list[int]
    own: list[int]
    cursor: int
    trace: Trace

    def row(self, chunk: int) -> StepRow:
        end = min(self.cursor + chunk, len(self.ids))
        params = SamplingParams(max_tokens=NEW_TOKENS, **SETTINGS[self.setting])  # type: ignore[arg-type]
        spec = SampleSpec(params, len(self.ids) - self.prompt_tokens, 0, ()) if end == len(self.ids) else None
        return StepRow(self.ids[self.cursor : end], self.cursor, self.table, spec)


@pytest.fixture(scope="module", params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def alone(dtype: str) -> dict[tuple[int, int], Trace]:
    """Every request by itself."""
    return play(dtype, Plan())


def play(dtype: str, plan: Plan) -> dict[tuple[int, int], Trace]:
    longest = blocks_for(max(map(len, PROMPTS)) + NEW_TOKENS, BLOCK_TOKENS)
    written = sum(blocks_for(len(prompt), BLOCK_TOKENS) for prompt in PROMPTS) if plan.is_warm else 0
    engine = opened(
        settled("native"),
        ensure_default_model(cache_root()),
        dtype,
        blocks=plan.batch * longest + written,
        threads=plan.threads,
        packed_dir=cache_root() / "packed",
    ).engine
    return Player(engine, plan).play()


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_plan_gives_the_bits_of_each_request_alone(
    dtype: str, alone: dict[tuple[int, int], Trace], plan: Plan
) -> None:
    """Ids, and the logits that each was drawn from."""
    traces = play(dtype, plan)

    differing = {key: first_difference(alone[key], trace) for key, trace in traces.items() if trace != alone[key]}
    assert traces.keys() == alone.keys()
    assert differing == {}


def first_difference(one: Trace, other: Trace) -> str:
    """Which token, and whether its id or only its logits."""
    position = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return f"token {position}: {'logits' if one[position][0] == other[position][0] else 'id'}"
