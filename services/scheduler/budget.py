"""How many prompt tokens one version may put into a worker's next step."""

from services.scheduler.chunk_parts import parts
from services.scheduler.chunk_size import MIN_TOKENS
from services.scheduler.state import Policy
from services.scheduler.worker_book import WorkerBook

OLDEST_PART = 4  # of a chunk, at most: what is kept for the oldest prompt, and no more than MIN_TOKENS
LAST_CHUNKS = 2  # as one: a step for the rest of a prompt costs more than a longer last one


def plan_chunks(worker: WorkerBook, policy: Policy) -> None:
    """Put chunk items into the worker's next version, parted as chunk_parts.py says.

    The prompt that is there longest moves on by a few whoever comes before it: it holds memory meanwhile. Where the
    rows alone take longer than the target that steps aim at, prompts have half of the step: no first token waits for
    ever for the sake of later ones.

    One chunk waits while another runs: it is there when the step ends, and a prompt whose client leaves is computed for
    no longer than those two.
    """
    if not worker.prefilling or worker.has_untaken_chunk:
        return
    rows = worker.decoding_rows
    fitting = max(int(worker.chunk_sizes.of(rows > 0).tokens) - rows, rows, MIN_TOKENS)
    budget = min(fitting, _limit_tokens(worker, policy))
    prefilling = worker.prefilling.values()
    oldest = min(prefilling, key=lambda choice: choice.handle)
    given = parts(prefilling, budget)
    missing = min(oldest.unplanned, MIN_TOKENS, budget // OLDEST_PART) - given.get(oldest, 0)
    if missing > 0:
        given = parts(prefilling, budget - missing)
        given[oldest] = given.get(oldest, 0) + missing
    if len(given) == 1:
        (only,) = given
        given[only] = _with_rest(only.unplanned, budget, worker, policy)
    for choice, tokens in given.items():
        worker.plan_chunk(choice, tokens)


def _with_rest(unplanned: int, budget: int, worker: WorkerBook, policy: Policy) -> int:
    """Tokens of this chunk. Where no row decodes beside it, the last two chunks of a prompt are one."""
    if not worker.decoding_rows and budget < unplanned <= min(LAST_CHUNKS * budget, _limit_tokens(worker, policy)):
        return unplanned
    return min(unplanned, budget)


def _limit_tokens(worker: WorkerBook, policy: Policy) -> int:
    return min(policy.max_chunk_tokens, max(worker.max_batch_tokens - worker.decoding_rows, 0))
