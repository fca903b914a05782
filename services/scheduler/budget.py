"""How many prompt tokens one version may put into a worker's next step."""

from services.scheduler.order import rank
from services.scheduler.state import Policy
from services.scheduler.worker_book import WorkerBook

MIN_CHUNK_TOKENS = 16  # a prompt moves on even where the decoding rows alone take longer than the target


def chunk_budget_tokens(worker: WorkerBook, policy: Policy) -> int:
    """As much as the fitted step time allows: the rows that decode beside the chunk wait for it."""
    rows = worker.decoding_rows
    fitting = worker.fit.tokens_within(policy.chunk_target_s, rows)
    limit = policy.max_chunk_tokens if fitting is None else min(policy.max_chunk_tokens, fitting)
    return min(max(limit, MIN_CHUNK_TOKENS), max(worker.max_batch_tokens - rows, 0))


def plan_chunks(worker: WorkerBook, policy: Policy) -> None:
    """Put chunk items of the oldest prompts first into the worker's next version."""
    if not worker.prefilling:
        return
    budget = chunk_budget_tokens(worker, policy)
    for choice in sorted(worker.prefilling.values(), key=rank):
        if budget <= 0:
            return
        tokens = min(choice.unplanned, budget)
        if tokens:
            worker.plan_chunk(choice, tokens)
            budget -= tokens
