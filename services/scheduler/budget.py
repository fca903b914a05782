"""How many prompt tokens one version may put into a worker's next step."""

from services.scheduler.chunk_parts import parts
from services.scheduler.chunk_size import MIN_TOKENS, SWIFT_TOKENS, Pace
from services.scheduler.headroom import flooding
from services.scheduler.state import State
from services.scheduler.worker_book import WorkerBook

OLDEST_PART = 4  # of a chunk, at most: what is kept for the oldest prompt, and no more than MIN_TOKENS
PROMPT_PART = 1.5  # prompt tokens to each decoding row, at least: one for one, a queue that is there never gets shorter
LAST_CHUNKS = 2  # as one: a step for the rest of a prompt costs more than a longer last one


def plan_chunks(state: State, worker: WorkerBook, now_s: float) -> None:
    """Put chunk items into the worker's next version, parted as chunk_parts.py says.

    The prompt that is there longest moves on by a few whoever comes before it: it holds memory meanwhile. Where many
    rows decode, prompts have the greater part of the step, though it takes longer than what steps aim at: no first
    token waits for the sake of many later ones, and a row that joins sooner shares more steps. While a tenant floods,
    its prompts come behind all others, and in short chunks.

    One chunk waits while another runs: it is there when the step ends, and a prompt whose client leaves is computed for
    no longer than those two.
    """
    if not worker.prefilling or worker.has_untaken_chunk:
        return
    rows, prefilling = worker.decoding_rows, list(worker.prefilling.values())
    pace = Pace.BESIDE if rows else Pace.ALONE
    oldest = min(prefilling, key=lambda choice: choice.handle)
    if floods := flooding(state, now_s):
        others = [choice for choice in prefilling if choice.unplanned and choice.sequence.tenant not in floods]
        prefilling, pace = others or prefilling, Pace.BESIDE if others else Pace.SWIFT
    limit = min(state.policy.max_chunk_tokens, max(worker.max_batch_tokens - rows, 0))
    budget = min(_fitting(worker, pace), limit)
    given = parts(prefilling, budget)
    missing = min(oldest.unplanned, MIN_TOKENS, budget // OLDEST_PART) - given.get(oldest, 0)
    if missing > 0:
        given = parts(prefilling, budget - missing)
        given[oldest] = given.get(oldest, 0) + missing
    if len(given) == 1:
        (only,) = given
        given[only] = _with_rest(only.unplanned, budget, limit, pace)
    for choice, tokens in given.items():
        worker.plan_chunk(choice, tokens, pace)


def _fitting(worker: WorkerBook, pace: Pace) -> int:
    """Prompt tokens that fit into such a step beside the rows."""
    rows, sizes = worker.decoding_rows, worker.chunk_sizes
    if pace is Pace.SWIFT:
        return max(int(min(sizes.of(pace).tokens, sizes.of(Pace.BESIDE).tokens)) - rows, SWIFT_TOKENS)
    return max(int(sizes.of(pace).tokens) - rows, int(PROMPT_PART * rows), MIN_TOKENS)


def _with_rest(unplanned: int, budget: int, limit: int, pace: Pace) -> int:
    """Tokens of this chunk. Where nobody waits for the end of the step, the last two chunks of a prompt are one."""
    if pace is Pace.ALONE and budget < unplanned <= min(LAST_CHUNKS * budget, limit):
        return unplanned
    return min(unplanned, budget)
