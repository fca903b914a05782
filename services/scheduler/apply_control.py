"""Control requests of gateways and tokenizers. Each may come twice; each is replied to."""

import heapq

from libs.contracts.messages import (
    Cancel,
    CellStatus,
    Delivered,
    Done,
    Exited,
    Gone,
    PromptScores,
    Resend,
    Resent,
    Scored,
    ScoresQuery,
    StatusQuery,
    StopAt,
)
from services.scheduler import apply_link, lifecycle, recovery
from services.scheduler.audit import audit
from services.scheduler.choice import Choice
from services.scheduler.events import Asked, AuditDue, Audited, Reply
from services.scheduler.reasons import Reason
from services.scheduler.state import State
from services.scheduler.status import cell_status

RESEND_TOKENS_MAX = 16_384  # with log-probabilities below 200 kB, under every broker's limit; fewer with tops


def asked(state: State, event: Asked, now_s: float) -> None:
    match event.message:
        case StopAt() | Resend() as message:
            if (choice := _choice(state, message.request_id, message.choice)) is not None:
                recovery.heard(state, choice, message.epoch, now_s)
    state.commands.append(Reply(event.ticket, _reply(state, event.message, now_s)))


def _reply(state: State, message: object, now_s: float) -> Done | Resent | Scored | CellStatus:
    match message:
        case Cancel():
            return _cancel(state, message, now_s)
        case StopAt():
            return _stop_at(state, message, now_s)
        case Resend():
            return _resend(state, message)
        case ScoresQuery():
            return _scored(state, message)
        case Delivered():
            return _delivered(state, message, now_s)
        case StatusQuery():
            return cell_status(state, _audit(state) if message.audit else ())
        case Exited():
            known = message.incarnation in state.workers
            apply_link.gone(state, Gone(message.incarnation), now_s)
            return Done(known)
    raise AssertionError(message)


def audit_due(state: State, event: AuditDue, now_s: float) -> None:
    """Nothing runs or waits."""
    _audit(state)


def _audit(state: State) -> tuple[str, ...]:
    """What is wrong; it is counted, and somebody is told. O(everything)."""
    problems = tuple(audit(state))
    state.counts["audits"] += 1
    state.counts["audit_violation"] += len(problems)
    state.commands.append(Audited(problems))
    return problems


def _cancel(state: State, cancel: Cancel, now_s: float) -> Done:
    """A request that is not here yet is remembered: its Sequence may still be on its way."""
    group = state.requests.get(cancel.request_id)
    if group is None:
        deadline_s = cancel.deadline_unix_ms / 1000
        state.cancelled[cancel.request_id] = deadline_s
        heapq.heappush(state.deadlines, (deadline_s, cancel.request_id))
        return Done(known=False)
    lifecycle.forget(state, group, Reason.CANCELLED, now_s)
    return Done(known=True)


def _stop_at(state: State, stop: StopAt, now_s: float) -> Done:
    choice = _choice(state, stop.request_id, stop.choice)
    if choice is None:
        return Done(known=False)
    lifecycle.stop_at(state, choice, stop.position, now_s)
    return Done(known=True)


def _delivered(state: State, delivered: Delivered, now_s: float) -> Done:
    group = state.requests.get(delivered.request_id)
    if group is None:
        return Done(known=False)
    totals = tuple(choice.total for choice in group.answers)
    if all(choice.end for choice in group.answers) and delivered.totals != totals:
        state.counts["delivered_differs"] += 1
    lifecycle.forget(state, group, Reason.DELIVERED, now_s)
    return Done(known=True)


def _resend(state: State, resend: Resend) -> Resent:
    """As much of the log from `position` on as fits one reply; `end` only with the last of it.

    Of a beam search nothing is known before it is over.
    """
    choice = _choice(state, resend.request_id, resend.choice)
    if choice is None or (choice.beam is not None and choice.is_open):
        return Resent(known=choice is not None, position=resend.position, ids=(), logprobs=(), end="")
    first = choice.prompt_tokens + resend.position
    most = RESEND_TOKENS_MAX // (1 + choice.logprobs.tops)
    ids = tuple(choice.ids[first : first + most])
    scores = choice.logprobs.read(resend.position, most)
    is_complete = resend.position + len(ids) >= choice.total
    return Resent(
        known=True,
        position=resend.position,
        ids=ids,
        logprobs=scores.logprobs,
        end=choice.end if is_complete else "",
        top_ids=scores.top_ids,
        top_logprobs=scores.top_logprobs,
    )


def _scored(state: State, query: ScoresQuery) -> Scored:
    """As many of the prompt's scores from `first` on as fit one reply."""
    choice = _choice(state, query.request_id, 0)
    log = None if choice is None else choice.prompt_scores
    if log is None or not 1 <= query.first <= len(log):
        return Scored(choice is not None)
    return Scored(True, (PromptScores(query.first, *log.read(query.first - 1, RESEND_TOKENS_MAX // (1 + log.tops))),))


def _choice(state: State, request_id: str, index: int) -> Choice | None:
    group = state.requests.get(request_id)
    return None if group is None else group.choice(index)
