"""A StepResult: tokens into logs, committed blocks into the tree, ends, hand-overs, confirmed removals.

The hottest path of the service: a steadily decoding row costs one append and two comparisons.
"""

from libs.contracts.errors import NumericalError
from libs.contracts.messages import PromptScores, RowResult, RowWait, StepResult
from libs.contracts.row_words import ERROR, GRAMMAR_BEHIND
from services.scheduler import (
    beam_step,
    forking,
    grants,
    lifecycle,
    parting,
    poison,
    recovery,
    residence,
    resting,
    swapping,
    tables,
)
from services.scheduler.choice import Choice, Phase
from services.scheduler.reasons import Reason
from services.scheduler.score_log import Scores
from services.scheduler.state import State
from services.scheduler.worker_book import WorkerBook


def step_result(state: State, result: StepResult, now_s: float) -> None:
    """Repeat key: (incarnation, step number)."""
    worker = state.obeying(result.incarnation, result.term)
    if worker is None or result.step_number <= worker.last_step:
        state.counts["stale_step_result"] += 1
        return
    worker.heard_s = now_s
    _items_done(state, worker, result)
    ahead = grants.ahead_tokens(state, worker)
    for take, rows in ((_found, result.found), (_advance, result.rows)):
        for row in rows:
            choice = _of_row(state, worker, row, result.version)
            if choice is None:
                state.counts["stale_row"] += 1
            else:
                take(state, worker, choice, row, ahead, now_s)
    for row in result.removed:
        choice = _of_row(state, worker, row, result.version)
        if choice is not None and choice.leaving:
            _take_in(state, worker, choice, row)
    for wait in result.waits:
        state.counts[f"row_waits_{wait.reason}"] += wait.waited_ns == 0
        if wait.reason == GRAMMAR_BEHIND:
            _park(worker, wait, now_s)
    for confirmed in worker.confirm(result.version):
        residence.left(state, confirmed)


def _items_done(state: State, worker: WorkerBook, result: StepResult) -> None:
    for copied in worker.report(result):
        tables.copied(state.memory, copied)
        state.queue.wake(swapping.come_back(state.memory, copied))
    resting.settle(state, worker, result)
    for done in result.swapped:
        state.swap_rates.report(inward=done.inward, blocks=done.blocks, seconds=done.took_ns / 1e9)
        state.counts["swapped_in_blocks" if done.inward else "swapped_out_blocks"] += done.blocks
        choice = state.choices.get(done.sequence)
        if choice is not None and choice.worker == worker.incarnation and not done.inward:
            swapping.note_out(choice, done.blocks)


def _park(worker: WorkerBook, wait: RowWait, now_s: float) -> None:
    choice = worker.residents.get(wait.sequence)
    if choice is not None and choice.epoch == wait.epoch:
        choice.parked_s = now_s if not wait.waited_ns else None


def _of_row(state: State, worker: WorkerBook, row: RowResult, version: int) -> Choice | None:
    """Whom a row is about: a resident, or a fork of one. None when it is of another attempt, or of a fork's time with
    a leader that has gone since: the place of its own that it has got computes that token again.
    """
    choice = state.choices.get(row.sequence)
    if choice is None or choice.epoch != row.epoch:
        return None
    resident = choice.leader or choice
    return choice if resident.worker == worker.incarnation and worker.had(resident, version) else None


def _advance(state: State, worker: WorkerBook, choice: Choice, row: RowResult, ahead: int, now_s: float) -> None:
    if choice.leader is not None:
        _drew(state, choice, row, now_s)
        return
    is_first = not choice.generated
    _take_in(state, worker, choice, row)
    if choice.beam is not None:
        _grew(state, worker, choice, row, now_s)
        return
    if is_first and choice.generated and choice.is_open:
        choice.explain(Reason.DECODING, now_s)
        lifecycle.started(state, choice)
    if row.end and choice.is_open:
        lifecycle.end(state, choice, row.end, now_s)
    if row.end or row.at_until:
        _stopped(state, worker, choice, now_s)
    elif row.ids and choice.phase in (Phase.PREFILLING, Phase.DECODING):
        if choice.phase is Phase.PREFILLING:
            _first_token(worker, choice, now_s)
        if grants.is_needy(state, choice, ahead):
            state.needy[choice.handle] = choice


def _drew(state: State, fork: Choice, row: RowResult, now_s: float) -> None:
    """The first token of a fork; its leader's row comes after it, and then they part."""
    if row.ids:
        _log(state, fork, row)
    if row.end:
        lifecycle.end(state, fork, row.end, now_s)
        forking.drop(fork)
        state.queue.wake(tables.release(state.memory, fork))
        del state.choices[fork.handle]


def _grew(state: State, worker: WorkerBook, choice: Choice, row: RowResult, now_s: float) -> None:
    """A row of a beam search; a chunk in the middle of what is known tells nothing yet."""
    if row.end and choice.is_open:
        lifecycle.fail(state, choice, NumericalError("the model's output was not finite"), now_s)
    if row.end or row.at_until:
        beam_step.told(state, worker, choice, row, now_s)


def _found(state: State, worker: WorkerBook, choice: Choice, row: RowResult, ahead: int, now_s: float) -> None:
    """Where a resident really stands: what the pool, or its worker, had of it that nobody had told."""
    if row.cursor > choice.cursor:
        state.queue.wake(tables.commit(state.memory, choice, row.cursor))
    recovery.account(state, choice)
    _advance(state, worker, choice, row, ahead, now_s)


def _first_token(worker: WorkerBook, choice: Choice, now_s: float) -> None:
    choice.phase = Phase.DECODING
    choice.explain(Reason.DECODING, now_s)
    worker.prefilling.pop(choice.handle, None)


def _stopped(state: State, worker: WorkerBook, choice: Choice, now_s: float) -> None:
    """The row stopped by itself. If it did so at its `until` and nobody wanted it gone, it goes on elsewhere."""
    if choice.forks and not choice.leaving:
        parting.part(state, choice, worker, now_s)
        return
    residence.stopped(state, choice, worker)
    if choice.phase is Phase.PREFILLING and not choice.leaving:
        choice.phase = Phase.DECODING
        lifecycle.hand_over(state, choice, now_s)
    else:
        residence.left(state, choice)


def _take_in(state: State, worker: WorkerBook, choice: Choice, row: RowResult) -> None:
    """Log a row's new tokens and commit what it wrote; a row that was not finite wrote nothing to be trusted."""
    if row.ids:
        _log(state, choice, row)
    if row.scores:
        _score(state, choice, row.scores[0])
    if row.cursor > choice.cursor and row.end != ERROR:
        state.queue.wake(tables.commit(state.memory, choice, row.cursor))
        if choice.deaths and choice.cursor > choice.died_at:
            poison.acquit(choice, worker)


def _score(state: State, choice: Choice, told: PromptScores) -> None:
    """Take in what is new of the prompt's scores; the first id has none."""
    log = choice.prompt_scores
    if log is None:
        return
    known = len(log) + 1 - told.first
    if known < 0:
        state.counts["score_gap"] += 1
        return
    log.extend(Scores(told.logprobs, told.ranks, told.top_ids, told.top_logprobs), skip=known)


def _log(state: State, choice: Choice, row: RowResult) -> None:
    """Append what is new, up to where the gateway stopped it. What is logged already must have been the same."""
    new_from = choice.generated - row.position
    if 0 <= choice.stop_position < choice.generated:
        return
    if new_from and not _agrees(choice, row, new_from):
        state.counts["exactness_violation"] += 1
        return
    choice.ids.extend(row.ids[new_from:])
    choice.share.generated(len(row.ids) - new_from)
    if row.logprobs:
        choice.logprobs.extend(Scores(row.logprobs, (), row.top_ids, row.top_logprobs), skip=new_from)
    if choice.stop_position >= 0:
        lifecycle.cut(choice, choice.stop_position)


def _agrees(choice: Choice, row: RowResult, overlap: int) -> bool:
    """Whether the row leaves no gap and its first `overlap` tokens are those of the log."""
    first = choice.prompt_tokens + row.position
    return overlap > 0 and tuple(choice.ids[first : first + len(row.ids)]) == row.ids[:overlap]
