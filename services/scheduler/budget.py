"""How many prompt tokens one version may put into a worker's next step."""

from services.scheduler.order import rank
from services.scheduler.state import Policy
from services.scheduler.worker_book import WorkerBook

SHORT_REST = 4  # a rest of up to a quarter of the budget


def plan_chunks(worker: WorkerBook, policy: Policy) -> None:
    """Put chunk items of the oldest prompts first into the worker's next version.

    One chunk waits while another runs: it is there when the step ends, and a prompt whose client leaves is computed for
    no longer than those two.
    """
    if not worker.prefilling or worker.has_untaken_chunk:
        return
    budget = min(int(worker.chunk_size.tokens), _limit_tokens(worker, policy))
    for choice in sorted(worker.prefilling.values(), key=rank):
        if budget <= 0:
            return
        tokens = _with_short_rest(choice.unplanned, budget, worker, policy)
        if tokens:
            worker.plan_chunk(choice, tokens)
            budget -= tokens


def _with_short_rest(unplanned: int, budget: int, worker: WorkerBook, policy: Policy) -> int:
    """Tokens of this chunk. Where no row decodes beside it, a rest too short for a step of its own comes along."""
    stretched = min(budget + budget // SHORT_REST, _limit_tokens(worker, policy))
    if not worker.decoding_rows and budget < unplanned <= stretched:
        return unplanned
    return min(unplanned, budget)


def _limit_tokens(worker: WorkerBook, policy: Policy) -> int:
    return min(policy.max_chunk_tokens, max(worker.max_batch_tokens - worker.decoding_rows, 0))
