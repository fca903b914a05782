"""What a choice keeps of an attempt that was taken from its worker, and how the next one goes on from it.

Whole committed blocks stay its table. What is committed beyond them are its *tails*: blocks that the worker may still
write, so they are copied before anybody goes on behind them.
"""

from libs.contracts.messages import BlockCopy
from services.scheduler.choice import Choice
from services.scheduler.memory import Memory
from services.scheduler.prefix import Run
from services.scheduler.tail import Tail

NEVER = 1 << 62  # the version at which a lost worker stops to use what its orders named: only its end counts


def part(memory: Memory, choice: Choice, incarnation: str, begun_blocks: int) -> list[int]:
    """Part a choice from a lost worker: it keeps what is committed. Returns handles that waited for its prefixes.

    The fill counts of the first `begun_blocks` blocks can be believed. Those that the worker may still write are
    freeing until it is gone.
    """
    choice.named[incarnation] = NEVER
    return set_aside(memory, choice, begun_blocks)


def set_aside(memory: Memory, choice: Choice, begun_blocks: int = 0) -> list[int]:
    """Have a choice without a worker keep what is committed, and nothing else."""
    _stay_out(memory, choice)
    kept, choice.tails = _committed(memory, choice, begun_blocks)
    woken = abandon(memory, choice)
    assert choice.shared_blocks <= kept
    for block in reversed(choice.table[kept:]):
        memory.give_back(block, choice.named)
    del choice.table[kept:]
    choice.cursor = kept * memory.block_tokens
    return woken


def copy_tails(memory: Memory, choice: Choice, tails: tuple[Tail, ...], whole: int) -> None:
    """Have the tails copied into the blocks behind the `whole` ones, short of the last known token.

    What a fenced attempt writes nobody may read. It wrote what lies below the last token that it is known to have
    drawn before it was fenced; without one, only what it reported counts, as for a prompt whose scores are wanted.
    Tokens of a later attempt, or of another one that its gateway listened to, tell nothing of it.
    """
    certain = choice.cursor + tails[0].tokens
    if choice.is_unscored:
        choice.reach = certain
    else:
        choice.reach = len(choice.ids) - 1 if len(choice.ids) > choice.joined_tokens else max(certain, choice.reach)
    copies = []
    for tail, index in zip(tails, range(whole, whole + len(tails)), strict=True):
        tokens = min(memory.block_tokens, choice.reach - index * memory.block_tokens)
        if tokens > 0:
            copies.append(BlockCopy(tail.block, choice.table[index], tokens))
        else:
            memory.give_back(tail.block, choice.named)
    choice.copies, choice.tails, choice.cursor = tuple(copies), (), certain
    choice.reach = min(choice.reach, (whole + len(copies)) * memory.block_tokens)


def abandon(memory: Memory, choice: Choice) -> list[int]:
    """Its pending blocks are nobody's to wait for any more. Returns handles that did."""
    if not choice.shared_blocks:
        return []
    run = deepest_run(memory, choice)
    if run.owner != choice.handle:
        return []
    choice.shared_blocks = run.start + run.ready
    return memory.tree.abandon(run)


def leave_tier(memory: Memory, choice: Choice) -> None:
    """Nothing of it rests in the host tier any more, or is on its way there."""
    _stay_out(memory, choice)
    if choice.swapped is not None:
        memory.tier.give_back_all(choice.swapped.held, {})
        choice.swapped = None


def _stay_out(memory: Memory, choice: Choice) -> None:
    """What its worker may still copy into is given back as soon as it cannot."""
    if choice.swap_out is not None:
        memory.tier.give_back_all(choice.swap_out.host_blocks, choice.named)
        choice.swap_out = None


def deepest_run(memory: Memory, choice: Choice) -> Run:
    """Where the last block is that it shares, or will."""
    return memory.tree.runs[choice.table[choice.shared_blocks - 1]]


def _committed(memory: Memory, choice: Choice, begun_blocks: int) -> tuple[int, tuple[Tail, ...]]:
    """How many blocks of a table are committed, and the tails behind them, referenced for the choice.

    Copies that were not reported may not have been made: their sources still have the tails.
    """
    if choice.swapped is not None:
        return choice.swapped.first, ()  # what was to be brought back may not have been
    if choice.copies:
        kept, sources = choice.table.index(choice.copies[0].target), [copy.source for copy in choice.copies]
        choice.copies = ()
        choice.disown()
    else:
        choice.reach = choice.cursor
        kept = choice.cursor // memory.block_tokens
        sources = choice.table[kept : max(begun_blocks, memory.blocks_for(choice.cursor))]
        for block in sources:
            memory.pool.reference(block)
    tokens = choice.cursor - kept * memory.block_tokens
    return kept, tuple(Tail(block, 0 if index else tokens) for index, block in enumerate(sources))
