"""An engine without a model: blocks hold token ids, and the next token is a hash of every id before it.

It reads those ids back through the block table, so a wrong block, a stale fill count or a lost copy changes the tokens.
`expected` says what a request must yield, whatever became of it on its way.
"""

import hashlib
import struct
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from libs.contracts.kv_layout import KvLayout, blocks_for
from libs.contracts.messages import Candidate, PromptScores, SamplingParams
from libs.engine.rows import Sampled, SampleSpec, StepRow
from libs.engine.worker.residents import Residents
from libs.engine.worker.serve import Loaded
from libs.engine.worker.shaping import shaping_of
from libs.engine.worker.step_values import Move

VOCAB_SIZE = 1024
EOS_IDS = (2, 3, 5, 7)
MODEL_DIGEST = "fake-model"
NUMERICS_CLASS = "fake"


class FakePool:
    """Shared by the workers of one process, as a real pool is by those of one host."""

    def __init__(self, blocks: int, block_tokens: int = 16) -> None:
        self.blocks, self.block_tokens = blocks, block_tokens
        self.fill_counts_N = array("I", bytes(4 * blocks))
        self.ids_NT = array("I", bytes(4 * blocks * block_tokens))

    def reset(self, block_ids: Sequence[int]) -> None:
        for block in block_ids:
            self.fill_counts_N[block] = 0

    def copy(self, source: int, target: int, tokens: int) -> None:
        tokens = min(tokens, self.fill_counts_N[source])
        start = source * self.block_tokens
        self.write(target, 0, self.ids_NT[start : start + tokens])
        self.fill_counts_N[target] = tokens

    def write(self, block: int, offset: int, ids: "array[int]") -> None:
        start = block * self.block_tokens + offset
        self.ids_NT[start : start + len(ids)] = ids

    def read(self, block_table: Sequence[int], tokens: int) -> "array[int]":
        """The ids of positions 0 … tokens − 1."""
        ids = array("I")
        for block in block_table[: blocks_for(tokens, self.block_tokens)]:
            ids += self.ids_NT[block * self.block_tokens : (block + 1) * self.block_tokens]
        return ids[:tokens]


class FakeTier:
    """Blocks beside a pool, as a host tier has them. `block_ns` is what a copy takes, where a test keeps the time."""

    def __init__(self, pool: FakePool, blocks: int, *, block_ns: int = 1000) -> None:
        self._pool, self._rest, self.block_ns = pool, FakePool(blocks, pool.block_tokens), block_ns

    @property
    def blocks(self) -> int:
        return self._rest.blocks

    def swap_out(self, block: int, host_block: int) -> None:
        _copy(self._pool, block, self._rest, host_block)

    def swap_in(self, block: int, host_block: int) -> None:
        _copy(self._rest, host_block, self._pool, block)

    def carry_out(self, moves: Sequence[Move], residents: Residents) -> None:
        """What a boundary does with moves, for those who step by hand."""
        for move in moves:
            for block, host_block in move.pairs:
                (self.swap_in if move.inward else self.swap_out)(block, host_block)
            residents.note_moved(move, self.block_ns * len(move.pairs))


def _copy(source: FakePool, block: int, target: FakePool, copied: int) -> None:
    start = block * source.block_tokens
    target.write(copied, 0, source.ids_NT[start : start + source.block_tokens])
    target.fill_counts_N[copied] = source.fill_counts_N[block]


class FakeEngine:
    """Deterministic, and strict: a row whose base is not written, or without blocks, fails the test.

    `before_step` may look at the rows, or hold the step up. A row that ends in one of `nan_ids` is not finite.
    """

    def __init__(
        self,
        pool: FakePool,
        *,
        before_step: Callable[[Sequence[StepRow]], object] = lambda rows: None,
        nan_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.pool, self.before_step, self.nan_ids = pool, before_step, nan_ids

    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        self.before_step(rows)
        for row in rows:
            self._write(row)
        return [self._sample(row) for row in rows]

    def _write(self, row: StepRow) -> None:
        pool, size = self.pool, self.pool.block_tokens
        for index, block in enumerate(row.block_table[: blocks_for(row.base, size)]):
            assert pool.fill_counts_N[block] >= min(size, row.base - index * size), "a row over unwritten slots"
        end = row.base + len(row.token_ids)
        assert blocks_for(end, size) <= len(row.block_table), "a row beyond its blocks"
        is_nan = row.token_ids[-1] in self.nan_ids
        for position, token in enumerate(row.token_ids, row.base):
            block, offset = row.block_table[position // size], position % size
            pool.write(block, offset, array("I", [token]))
            if not is_nan:
                pool.fill_counts_N[block] = offset + 1

    def _sample(self, row: StepRow) -> Sampled | None:
        if row.token_ids[-1] in self.nan_ids:
            return Sampled(-1, None, True, forks=(Sampled(-1, None, True),) * len(row.forks))
        ids = self.pool.read(row.block_table, row.base + len(row.token_ids))
        scores = scores_of(ids, row.base + 1, row.scored_ids, row.score_tops) if row.scored_ids else None
        if row.sample is None:
            return None if scores is None else Sampled(-1, None, False, scores=scores)
        forks = tuple(draw(ids, fork) for fork in row.forks)
        return replace(draw(ids, row.sample), forks=forks, scores=scores)


def draw(ids: "array[int]", spec: SampleSpec) -> Sampled:
    """A function of the ids, the parameters and the seed alone."""
    key = 0 if spec.params.temperature == 0 else (spec.params.seed + spec.choice) % (1 << 64)
    digest = hashlib.blake2b(
        ids.tobytes() + struct.pack("<QI", key, spec.position) + _shape(spec), digest_size=8
    ).digest()
    word = int.from_bytes(digest, "little")
    token = next((id for id in _from(word % VOCAB_SIZE) if _may_follow(id, spec)), -1)
    if token < 0:
        return Sampled(-1, None, False)
    logprob = -((word >> 32) % 4096) / 256 if spec.params.logprobs >= 0 else None  # exact in float32
    if spec.candidates:
        return Sampled(token, logprob, False, candidates(ids, spec))
    top_ids, top_logprobs = likeliest(ids, max(spec.params.logprobs, 0))
    return Sampled(token, logprob, False, top_ids=top_ids, top_logprobs=top_logprobs)


def _from(first: int) -> Iterator[int]:
    return ((first + step) % VOCAB_SIZE for step in range(VOCAB_SIZE))


def _may_follow(token: int, spec: SampleSpec) -> bool:
    how = spec.adjustment
    if how is not None and how.mask_ready is not None:
        while not how.mask_ready[0]:
            time.sleep(0)  # lets the thread that fills it go on
    masks = (how.allowed_W, how.mask_W) if how is not None else ()
    return token not in spec.banned_ids and all(
        mask_W is None or bool(mask_W[token // 32] >> (token % 32) & 1) for mask_W in masks
    )


def _shape(spec: SampleSpec) -> bytes:
    """What penalties and biases know, so that a token tells when it is not what the ids say."""
    how = spec.adjustment
    if how is None or (how.seen is None and how.bias_B is None):
        return b""
    seen = sorted(zip(how.seen.ids, how.seen.counts, strict=True)) if how.seen else []
    bias = [None if part is None else part.tolist() for part in (how.bias_ids_B, how.bias_B)]
    return repr((seen, how.repetition, how.frequency, how.presence, bias)).encode()


def candidates(ids: "array[int]", spec: SampleSpec) -> tuple[Candidate, ...]:
    """Every id has a log-probability, a function of the ids alone; few of them differ."""
    best = [(cost, token) for cost, token in ranked(ids) if token not in spec.banned_ids]
    return tuple(Candidate(token, -cost) for cost, token in best[: spec.candidates])


def ranked(ids: "array[int]") -> list[tuple[float, int]]:
    """Every id, the likeliest first, with what its log-probability is below 0."""
    digest = hashlib.blake2b(ids.tobytes(), digest_size=64).digest()
    return sorted(((digest[token % 64] + token // 64) / 16, token) for token in range(VOCAB_SIZE))  # exact in float32


def likeliest(ids: "array[int]", count: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """What is told beside a token: a function of the ids before it, and of no cost."""
    digest = hashlib.blake2b(ids.tobytes(), digest_size=2 * count or 1).digest()
    return tuple(digest[2 * n] + digest[2 * n + 1] for n in range(count)), tuple(-n / 8 for n in range(count))


def scores_of(ids: "array[int]", first: int, scored_ids: Sequence[int], tops: int) -> PromptScores:
    """Of the ids from index `first` on, each by those before it."""
    told = [likeliest(ids[: first + n], 1 + tops) for n in range(len(scored_ids))]
    return PromptScores(
        first,
        tuple(-own[0] / 4 for own, _ in told),
        tuple(1 + own[0] % 9 for own, _ in told),
        tuple(token for ids, _ in told for token in ids[1:]),
        tuple(logprob for _, logprobs in told for logprob in logprobs[1:]),
    )


def expected(prompt_ids: Sequence[int], params: SamplingParams, choice: int = 0) -> tuple[tuple[int, ...], str]:
    """The ids that a choice must yield, and how it ends: written without blocks, batches or orders."""
    ending = {*params.stop_token_ids, *(() if params.ignore_eos else EOS_IDS)}
    ids, generated = array("I", prompt_ids), list[int]()
    while True:
        shaping = shaping_of(params, frozenset(ending), ids, len(prompt_ids), VOCAB_SIZE)  # from all ids, each time
        banned, how = (shaping.banned_ids(ids), shaping.adjustment) if shaping else ((), None)
        token = draw(ids, SampleSpec(params, len(generated), choice, banned, adjustment=how)).token_id
        if token < 0:
            return tuple(generated), "dead_end"
        ids.append(token)
        generated.append(token)
        if token in ending:
            return tuple(generated), "stop"
        if len(generated) == params.max_tokens:
            return tuple(generated), "length"


def fake_loaded(
    pool: FakePool, engine: FakeEngine | None = None, *, max_model_len: int = 4096, tier: FakeTier | None = None
) -> Loaded:
    """What a worker runs on, with a fake engine."""
    return Loaded(
        engine=engine or FakeEngine(pool),
        pool=pool,
        pool_name=f"fake/{id(pool):x}",
        pool_blocks=pool.blocks,
        layout=KvLayout(layers=1, kv_heads=1, head_dim=1, block_tokens=pool.block_tokens, dtype="float32"),
        eos_ids=EOS_IDS,
        vocab_size=VOCAB_SIZE,
        max_model_len=max_model_len,
        model_digest=MODEL_DIGEST,
        numerics_class=NUMERICS_CLASS,
        tier=tier,
        tier_name=f"fake/{id(tier):x}" if tier else "",
    )


def best_of_beams(prompt_ids: Sequence[int], params: SamplingParams, count: int) -> list[tuple[tuple[int, ...], str]]:
    """The `count` best hypotheses of a beam search and how they end: written without blocks, batches or orders."""
    ending = {*params.stop_token_ids, *(() if params.ignore_eos else EOS_IDS)}
    width, finished = params.beam_width, list[tuple[float, tuple[int, ...], str]]()
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for tokens in range(1, params.max_tokens + 1):
        banned = tuple(ending) if tokens - 1 < params.min_tokens else ()
        spec = SampleSpec(params, tokens - 1, 0, banned, 2 * width)
        grown = [
            (-(score + one.logprob), parent, one.token_id)
            for parent, (score, ids) in enumerate(live)
            for one in candidates(array("I", (*prompt_ids, *ids)), spec)
        ]
        following: list[tuple[float, tuple[int, ...]]] = []
        for cost, parent, token in sorted(grown):
            ids = (*live[parent][1], token)
            if len(following) == width:
                break
            if token not in ending:
                following.append((-cost, ids))
            if token in ending or tokens == params.max_tokens:
                reason = "stop" if token in ending else "length"
                finished.append((-cost / tokens**params.length_penalty, ids, reason))
        live = following
        finished = sorted(finished, key=lambda one: -one[0])[:width]
        if not live or (len(finished) == width and _is_enough(params, finished[-1][0], live[0][0], tokens)):
            break
    return [(ids, reason) for _, ids, reason in finished[:count]]


def _is_enough(params: SamplingParams, worst: float, best_live: float, tokens: int) -> bool:
    return params.early_stopping or worst >= best_live / tokens**params.length_penalty
