"""Requests that workers die of: whose death counts, who must run alone, who must not run again.

A death counts for whoever may have been in the step that was not finished; getting past that place clears it. Alone at
last, a request shows whether it was the cause, so at most three workers die of one.
"""

from services.scheduler.choice import Choice
from services.scheduler.worker_book import WorkerBook

SUSPECT_DEATHS = 2
POISON_DEATHS = 3


def runs_alone(choice: Choice) -> bool:
    return choice.deaths >= SUSPECT_DEATHS


def is_poison(choice: Choice) -> bool:
    """Its last death was one alone, so nobody else can have been the cause."""
    return choice.deaths >= POISON_DEATHS


def blame(worker: WorkerBook, block_tokens: int) -> None:
    """The worker is dead: count it for those that it may have been computing."""
    for choice in worker.residents.values():
        if worker.may_have_computed(choice, len(choice.table) * block_tokens - choice.cursor):
            choice.deaths += 1
            choice.died_at = choice.cursor + max(choice.chunked, 1) - 1


def acquit(choice: Choice, worker: WorkerBook) -> None:
    """It has got past where a worker died: others may run beside it again."""
    choice.deaths = 0
    if worker.isolates == choice.handle:
        worker.isolates = 0
