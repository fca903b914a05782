"""The other choices of a resident's request, which draw their first token from its logits. Pure.

They have no rows or blocks of their own yet: what they drew is reported, and sent to their gateway, as if they had.
"""

from dataclasses import replace

from libs.contracts.messages import Resident, RowResult
from libs.contracts.row_words import DEAD_END, ERROR
from libs.engine.rows import Sampled
from libs.engine.worker.held import Held


def forked(held: Held, result: RowResult, sampled: Sampled | None) -> list[tuple[Resident, RowResult]]:
    """What each fork of a resident drew in a step that left the resident as `result` says."""
    if sampled is None or not sampled.forks:
        return []
    resident = held.resident
    return [
        (
            replace(resident, sequence=fork.sequence, choice=fork.choice, epoch=fork.epoch, forks=()),
            _report(held, replace(result, sequence=fork.sequence, epoch=fork.epoch, scores=()), drawn),
        )
        for fork, drawn in zip(resident.forks, sampled.forks, strict=True)
    ]


def _report(held: Held, result: RowResult, drawn: Sampled) -> RowResult:
    """Every fork stops with its first token."""
    nothing = replace(result, ids=(), logprobs=(), top_ids=(), top_logprobs=(), at_until=True)
    if drawn.is_nan:
        return replace(nothing, end=ERROR)
    if drawn.token_id < 0:
        return replace(nothing, end=DEAD_END)
    logprobs = () if drawn.logprob is None else (drawn.logprob,)
    end = held.judge(drawn.token_id, generated=1)
    told = replace(nothing, ids=(drawn.token_id,), logprobs=logprobs, end=end)
    return replace(told, top_ids=drawn.top_ids, top_logprobs=drawn.top_logprobs)
