"""The fork: all choices of a request have their first token, and go on side by side from one prompt.

Full blocks of the prompt stay shared. Where it ends inside a block, the next version copies that one for every choice
but the leader, who writes on in place; a copy's source is its fork's until the copy is reported. They all go on with
one worker. What is copied are tokens of the prompt, which nobody writes again: no order of copies and steps is wrong.
"""

from libs.contracts.messages import BlockCopy
from services.scheduler import forking, lifecycle, placement, residence
from services.scheduler.choice import Choice, Phase
from services.scheduler.memory import Memory
from services.scheduler.reasons import Reason
from services.scheduler.state import DECODE, State
from services.scheduler.worker_book import WorkerBook


def part(state: State, leader: Choice, worker: WorkerBook, now_s: float) -> None:
    """The leader has stopped at its first token on this worker; what its forks drew is known."""
    decode = worker if worker.role == DECODE else placement.decoder_of(state, leader)
    forks = forking.take_forks(leader)
    for fork in forks:
        if decode is not None and fork.generated:
            _branch(state, leader, fork, decode, now_s)
        else:
            forking.give_up_stake(state.memory, fork)
            state.queue.push(fork)
    if leader.is_open and decode is worker:
        _stay(state, leader, worker, now_s)
        return
    residence.stopped(state, leader, worker)
    if leader.is_open:
        leader.phase = Phase.DECODING
        lifecycle.hand_over(state, leader, now_s)
    else:
        residence.left(state, leader)


def _branch(state: State, leader: Choice, fork: Choice, worker: WorkerBook, now_s: float) -> None:
    take_stake(state.memory, leader, fork)
    fork.cached_tokens, fork.is_ordered, fork.phase = leader.cached_tokens, True, Phase.DECODING
    fork.explain(Reason.DECODING, now_s)
    residence.join(state, fork, worker, fork.params.max_tokens)
    state.needy[fork.handle] = fork  # its stake holds one token more


def take_stake(memory: Memory, leader: Choice, fork: Choice) -> None:
    """Its stake becomes its table: the prompt's full blocks, then its own, the first of them a copy of the tail."""
    full, tail_tokens = divmod(leader.prompt_tokens, memory.block_tokens)
    prompt_blocks = memory.blocks_for(leader.prompt_tokens)
    own = fork.stake[prompt_blocks:]
    if tail_tokens:
        fork.copies = (BlockCopy(fork.stake[full], own[0], tail_tokens),)
    fork.table, fork.shared_blocks, fork.stake = fork.stake[:full] + own, min(full, leader.shared_blocks), []
    fork.cursor = fork.reach = leader.prompt_tokens


def _stay(state: State, leader: Choice, worker: WorkerBook, now_s: float) -> None:
    """It writes on where it is: its next version only raises its until."""
    leader.phase = Phase.DECODING
    leader.explain(Reason.DECODING, now_s)
    residence.unreserve(state, leader)
    worker.prefilling.pop(leader.handle, None)
    worker.raise_until(leader, leader.params.max_tokens)
    state.needy[leader.handle] = leader
