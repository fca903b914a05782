"""Work leaves a worker that cannot confirm it, and requests of an older term are taken up: neither loses a token.

In this order: the epoch is raised, the gateway is told and says what it holds, the choice goes on elsewhere from what
is committed, the worker's process is ended, and only then its other blocks come back.
"""

from collections.abc import Sequence

from libs.contracts.errors import ExactnessViolation, Poison
from libs.contracts.messages import ChoiceEpoch, ChoiceLog, EpochRaised, FencedOff, LogQuery, RequestLog
from services.scheduler import forking, keeping, lifecycle, poison, residence, resting, tables
from services.scheduler.beam import Search
from services.scheduler.choice import Choice, Phase
from services.scheduler.events import Ask, DeadLetter, KillWorker, Send
from services.scheduler.group import Group
from services.scheduler.reasons import Reason
from services.scheduler.state import State
from services.scheduler.worker_book import WorkerBook

NOTHING_TAKEN = -1
ANSWER_S = 1.0  # a gateway that is silent for longer is as good as dead


def lose_worker(state: State, worker: WorkerBook, now_s: float) -> None:
    """Give a worker up. What it ran goes on elsewhere; what it may still write stays untouched until it is gone."""
    poison.blame(worker, state.memory.block_tokens)
    resting.stop(state, worker, NOTHING_TAKEN, keeping.NEVER)
    raised: dict[str, list[Choice]] = {}
    for choice in worker.give_up():
        for parted in _part(state, choice, worker):
            raised.setdefault(parted.request_id, []).append(parted)
    for choices in raised.values():
        _ask(state, choices, _raised(state, choices), now_s)
        for choice in filter(poison.is_poison, choices):
            _condemn(state, choice, now_s)
    state.counts["worker_lost"] += 1
    state.commands.append(Send(worker.incarnation, FencedOff(state.term, "given up: no sign of progress")))
    state.commands.append(KillWorker(worker.host, worker.incarnation))


def worker_gone(state: State, worker: WorkerBook, now_s: float) -> None:
    """Its process no longer exists, or has nothing left to write to: whatever it could write comes back."""
    if not (worker.is_lost or worker.has_left):
        lose_worker(state, worker, now_s)
    resting.stop(state, worker, NOTHING_TAKEN, keeping.NEVER)
    del state.workers[worker.incarnation]
    state.memory.forget(worker.incarnation)


def relieve(state: State, worker: WorkerBook, now_s: float) -> None:
    """Take from a worker that is told to stop what it computes: it confirms that, so nothing is lost or repeated."""
    for choice in list(worker.residents.values()):
        residence.move(state, choice, Reason.WORKER_LEAVES, now_s)


def inquire(state: State, group: Group, now_s: float) -> None:
    """A new request may have been computed under an older term: ask its gateway before doing it again."""
    forking.take_forks(group.leader)
    query = LogQuery((group.request_id,), state.term, state.policy.cell)
    begun = [choice for choice in group.choices if not choice.is_dormant]
    _ask(state, begun, query, now_s)
    for choice in begun:
        state.queue.remove(choice)
        choice.answer_by_s = now_s + ANSWER_S


def logged(state: State, log: RequestLog, now_s: float) -> None:
    """A gateway has said what it holds. Without the request, or with all of it, nothing is owed any more."""
    group = state.requests.get(log.request_id)
    if group is None:
        return
    if not log.live:
        lifecycle.forget(state, group, Reason.CANCELLED, now_s)
    elif {held.choice for held in log.choices if held.end} >= set(range(len(group.answers))):
        lifecycle.forget(state, group, Reason.DELIVERED, now_s)
    else:
        if group.search is not None:
            _search_on(state, group, group.search, log, now_s)
            return
        for held in log.choices:
            choice = group.choice(held.choice)
            if choice is not None and choice.is_open:
                _learned(state, choice, held, now_s)
        forking.gather(state, group)


def heard(state: State, choice: Choice, epoch: int, now_s: float) -> None:
    """Its gateway names the attempt that it listens to: one begun without its answer may be below that.

    While the gateway is asked its log will tell, and that answers the attempt it was asked with.
    """
    is_begun = choice.is_blind and choice.is_open and choice.phase is not Phase.ASKING
    if is_begun and choice.beam is None and epoch >= choice.epoch:
        state.counts["raised_unanswered"] += 1
        _raise_above(state, choice, epoch, now_s)


def resume(state: State, choice: Choice, now_s: float) -> None:
    """It waits for a worker, from what is known of it now."""
    del state.asking[choice.handle]
    choice.phase, choice.answer_by_s = Phase.WAITING, None
    if choice.generated:
        choice.computed = max(choice.computed, len(choice.ids) - 1)
        choice.died_at = max(choice.died_at, choice.computed)
    residence.wait(state, choice)


def account(state: State, choice: Choice) -> None:
    """It goes on from its cursor: what was computed beyond that is computed again."""
    state.counts["recomputed_tokens"] += max(0, choice.computed - choice.cursor)
    choice.computed = 0


def resume_unanswered(state: State, now_s: float) -> None:
    """Whose gateway did not answer in time is generated again: the same tokens."""
    late = [c for c in state.asking.values() if c.answer_by_s is not None and c.answer_by_s <= now_s]
    for choice in late:
        choice.epoch += 1
        choice.is_blind = True
        resume(state, choice, now_s)
    for request_id in dict.fromkeys(choice.request_id for choice in late):
        forking.gather(state, state.requests[request_id])


def learn(state: State, choice: Choice, generated: tuple[int, ...], now_s: float) -> bool:
    """Know the longer log. Where both have a position they must agree; else the request fails, never spliced.

    With log-probabilities wanted only what came with them is known: the rest is computed again.
    """
    known = tuple(choice.ids[choice.prompt_tokens :])
    overlap = min(len(known), len(generated))
    if known[:overlap] != generated[:overlap]:
        state.counts["exactness_violation"] += 1
        lifecycle.fail(state, choice, ExactnessViolation("two logs of this request differ"), now_s)
        return False
    if choice.params.logprobs < 0:
        choice.ids.extend(generated[overlap : choice.params.max_tokens - 1])
    return True


def _part(state: State, choice: Choice, worker: WorkerBook) -> list[Choice]:
    """It is with no worker any more. Returns those who go on in another attempt: it, and who was to fork from it."""
    state.running.pop(choice.handle, None)
    state.needy.pop(choice.handle, None)
    residence.unreserve(state, choice)
    choice.worker, choice.leaving, choice.chunked = "", False, 0
    choice.computed = max(choice.computed, choice.cursor)
    state.queue.wake(keeping.part(state.memory, choice, worker.incarnation, worker.begun_blocks(choice)))
    if not choice.is_open:
        state.queue.wake(tables.release(state.memory, choice))
        del state.choices[choice.handle]
        forking.scatter(state, choice)
        return []
    forking.recall(state.memory, choice)
    state.counts["moved_sequences"] += 1
    parted = [*forking.take_forks(choice), choice]
    for each in parted:
        each.epoch += 1
    return parted


def _raised(state: State, choices: Sequence[Choice]) -> EpochRaised:
    term, cell = state.term, state.policy.cell
    epochs = tuple(ChoiceEpoch(c.index, c.epoch, c.deaths, c.died_at) for c in choices)
    return EpochRaised(choices[0].request_id, term, cell, epochs)


def _condemn(state: State, choice: Choice, now_s: float) -> None:
    letter = DeadLetter(
        choice.request_id, choice.sequence.tenant, choice.deaths, choice.prompt_tokens, choice.generated
    )
    state.commands.append(letter)
    lifecycle.fail(state, choice, Poison("workers die while they compute this request"), now_s)


def _ask(state: State, choices: Sequence[Choice], message: EpochRaised | LogQuery, now_s: float) -> None:
    """Ask the gateway of these choices, all of one request."""
    for choice in choices:
        choice.phase = Phase.ASKING
        choice.explain(Reason.WORKER_LOST, now_s)
        state.asking[choice.handle] = choice
    first = choices[0]
    state.commands.append(Ask(first.gateway, first.request_id, message, first.traceparent))


def _search_on(state: State, group: Group, search: Search, log: RequestLog, now_s: float) -> None:
    """Its gateway knows nothing of a search but its answers, which it takes in no older epoch than it has raised."""
    for held in log.choices:
        search.epochs[held.choice] = max(search.epochs.get(held.choice, 0), held.epoch)
    for choice in group.choices:
        if choice.phase is Phase.ASKING:
            resume(state, choice, now_s)


def _learned(state: State, choice: Choice, held: ChoiceLog, now_s: float) -> None:
    if held.end:
        lifecycle.conclude(state, choice, held.ids, held.end, now_s)
    elif choice.phase is Phase.ASKING:
        _answered(state, choice, held, now_s)
    elif held.epoch >= choice.epoch:
        _raise_above(state, choice, held.epoch, now_s)


def _raise_above(state: State, choice: Choice, epoch: int, now_s: float) -> None:
    """The attempt that was begun without its gateway's answer is one that the gateway does not listen to."""
    choice.epoch, choice.is_older = epoch + 1, False
    if choice.worker and not choice.leaving:
        residence.move(state, choice, Reason.NOT_LISTENED_TO, now_s)


def _answered(state: State, choice: Choice, log: ChoiceLog, now_s: float) -> None:
    """Go on from the longer log. An answer to an older question does not count: it promised less."""
    is_query = choice.answer_by_s is not None
    if log.epoch < choice.epoch and not is_query:
        state.counts["stale_log"] += 1
        return
    if is_query:
        choice.epoch, choice.is_older = max(choice.epoch, log.epoch), True
        choice.deaths, choice.died_at = log.deaths, log.died_at
    elif log.epoch > choice.epoch:
        choice.epoch = log.epoch + 1
        choice.disown()
    choice.is_blind = False
    if learn(state, choice, log.ids, now_s):
        resume(state, choice, now_s)
