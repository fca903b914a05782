"""Who could not be done by its deadline any more, by the rates that steps were fitted to, and so is not begun.

Only where others run: alone a request is always tried, since a rate that is wrong is put right by trying.
"""

from libs.contracts.errors import DeadlineUnreachable
from services.scheduler import lifecycle, tables
from services.scheduler.choice import Choice, Phase
from services.scheduler.reasons import Reason
from services.scheduler.state import State

KNOWN_STEPS = 16  # reported ones before a worker's rates count
MARGIN = 0.8  # of the fitted time that it takes at least: half of the steps are quicker than the fit says


def least_s(state: State, choice: Choice, cached_blocks: int) -> float:
    """How long it takes at least, once begun: its prompt, and the tokens that it is certain to have; 0 if not known."""
    fits = [worker.fit for worker in state.workers.values() if worker.is_ready and worker.fit.reports >= KNOWN_STEPS]
    if not fits:
        return 0.0
    prompt_tokens = max(1, len(choice.ids) - cached_blocks * state.memory.block_tokens)
    more_tokens = max(choice.params.min_tokens - 1, 0)
    prompt_s = min(fit.predict_s(prompt_tokens, 1) for fit in fits)
    return MARGIN * (prompt_s + more_tokens * min(fit.predict_s(1, 1) for fit in fits))


def latest_start_s(state: State, choice: Choice) -> float:
    """When it has to be looked at whether it can still be done, if it was not begun by then."""
    return choice.due_s - least_s(state, choice, 0)


def shed(state: State, choice: Choice, now_s: float) -> bool:
    """End it if it waits and would be late even if begun now. A prefix that is being computed counts as cached."""
    if choice.phase is not Phase.WAITING or not state.running:
        return False
    if any(each.was_admitted for each in state.requests[choice.request_id].choices):
        return False
    if now_s < latest_start_s(state, choice):
        return False
    hit = tables.match(state.memory, choice)
    if hit.pending is not None or now_s + least_s(state, choice, len(hit.blocks)) <= choice.deadline_s:
        return False
    error = DeadlineUnreachable("others are before it for so long that it could not be done within its timeout")
    lifecycle.fail(state, choice, error, now_s, reason=Reason.SHED)
    return True
