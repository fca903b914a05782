"""Before a request's choices part: the last of them, the leader, computes the prompt for all of them.

The others, its forks, are in no queue and no order. From the leader's admission on each of them holds the blocks of the
prompt, shared, and those that it will need of its own at once: where the prompt ends inside a block a copy of that one,
else one for its next token. So a fork never lacks room. A request forks only while nobody has a token of it: whatever
went wrong before, its choices then go on one by one, which costs computing again and changes no token.
"""

from services.scheduler.choice import Choice, Phase
from services.scheduler.group import Group
from services.scheduler.memory import Memory
from services.scheduler.state import State


def gather(state: State, group: Group) -> bool:
    """Have all but the last choice wait for its first token, where each of them waits with nothing. Whether they do."""
    *others, leader = group.choices
    if not others or not all(_is_blank(state, choice) for choice in group.choices):
        return False
    if any(choice.keeps_blocks for choice in others):
        return False
    for choice in others:
        state.queue.remove(choice)
        choice.leader = leader
    leader.forks = tuple(others)
    return True


def settle(state: State, leader: Choice) -> None:
    """Before its admission: where they cannot fork, each goes on by itself."""
    if not leader.forks:
        return
    memory, everyone = state.memory, (leader, *leader.forks)
    needed = memory.blocks_for(min(leader.prompt_tokens + 1, leader.slots)) + own_blocks(memory, leader)
    if any(choice.generated for choice in everyone) or needed + len(everyone) > memory.pool.total_blocks:
        scatter(state, leader)


def rows(state: State) -> int:
    """Choices that run, with those that will from their leader's first token on."""
    return len(state.running) + sum(len(choice.forks) for choice in state.running.values())


def own_blocks(memory: Memory, leader: Choice) -> int:
    """Blocks that all its forks need at once beside those of the prompt."""
    return len(leader.forks) * _own_blocks(memory, leader)


def deal(memory: Memory, leader: Choice) -> None:
    """The leader's table ends with the blocks that its forks need: each gets its own, and a stake in the prompt's."""
    prompt_blocks, own = memory.blocks_for(leader.prompt_tokens), _own_blocks(memory, leader)
    for fork in reversed(leader.forks):
        cut = len(leader.table) - own
        fork.stake = leader.table[:prompt_blocks] + leader.table[cut:]
        del leader.table[cut:]
    for fork in leader.forks:
        for block in fork.stake[:prompt_blocks]:
            memory.pool.reference(block)


def recall(memory: Memory, leader: Choice) -> None:
    """The leader is no longer with a worker: its forks hold nothing."""
    for fork in leader.forks:
        give_up_stake(memory, fork)


def give_up_stake(memory: Memory, fork: Choice) -> None:
    """No order has named it for the fork: who else uses its blocks makes a note of who may write to them."""
    for block in reversed(fork.stake):
        memory.give_back(block, {})
    fork.stake = []


def scatter(state: State, leader: Choice) -> None:
    """Each of its forks goes on by itself."""
    for fork in take_forks(leader):
        give_up_stake(state.memory, fork)
        if fork.is_open:
            fork.phase, fork.needs_blocks = Phase.WAITING, 0
            state.queue.push(fork)


def take_forks(leader: Choice) -> tuple[Choice, ...]:
    """Nobody waits for its first token any more; who did, in the order of their index."""
    forks, leader.forks = leader.forks, ()
    for fork in forks:
        fork.leader = None
    return forks


def drop(fork: Choice) -> None:
    """It waits for nobody any more."""
    leader, fork.leader = fork.leader, None
    if leader is not None:
        leader.forks = tuple(other for other in leader.forks if other is not fork)


def _is_blank(state: State, choice: Choice) -> bool:
    return choice in state.queue and not choice.generated


def _own_blocks(memory: Memory, leader: Choice) -> int:
    """With a single token to generate nobody writes beyond the prompt."""
    if leader.slots <= leader.prompt_tokens:
        return 0
    return memory.blocks_for(leader.prompt_tokens + 1) - leader.prompt_tokens // memory.block_tokens
