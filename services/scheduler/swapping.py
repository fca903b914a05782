"""A choice's way to the host tier and back: its private blocks travel, blocks that others share keep its reference.

Out: the version that takes it off its worker copies what is committed there, and the report of that version tells how
much. In: the version that adds it again brings everything back, and the report of that one frees the tier's blocks.
"""

from libs.contracts.messages import Swap
from services.scheduler import tables
from services.scheduler.choice import Choice, Phase
from services.scheduler.keeping import abandon
from services.scheduler.memory import Memory
from services.scheduler.swapped import SwapOut, Swapped
from services.scheduler.worker_book import WorkerBook


def first_private(memory: Memory, choice: Choice) -> int:
    """Index of the first block of its table from which on nobody else uses any."""
    index = len(choice.table)
    while index and memory.pool.references[choice.table[index - 1]] == 1:
        index -= 1
    return index


def begin_out(memory: Memory, choice: Choice, worker: WorkerBook) -> bool:
    """Have its worker's next version, which is to remove it, copy its private blocks. False where they have no room."""
    blocks = choice.table[first_private(memory, choice) :]
    host_blocks = memory.tier.take(len(blocks))
    if host_blocks is None:
        return False
    choice.swap_out = SwapOut(host_blocks)
    worker.swap_out(Swap(choice.handle, tuple(blocks), host_blocks))
    return True


def note_out(choice: Choice, copied_blocks: int) -> None:
    """Its worker has reported the copy."""
    if choice.swap_out is not None:
        choice.swap_out = SwapOut(choice.swap_out.host_blocks, copied_blocks)


def may_rest(memory: Memory, choice: Choice) -> bool:
    """Whether all that is committed in its private blocks is in the tier, and it still wants to go on from there."""
    out = choice.swap_out
    if out is None or not out.copied or choice.phase is not Phase.WAITING:
        return False
    return len(choice.table) - len(out.host_blocks) + out.copied == memory.blocks_for(choice.cursor)


def rest(memory: Memory, choice: Choice) -> list[int]:
    """It has left its worker for the tier. Returns handles that waited for prefixes which it did not get to."""
    out = choice.swap_out
    assert out is not None and out.copied
    first = len(choice.table) - len(out.host_blocks)
    memory.tier.give_back_all(out.host_blocks[out.copied :], choice.named)
    choice.swapped = Swapped(first, out.host_blocks[: out.copied], choice.cursor)
    choice.swap_out = None
    woken = abandon(memory, choice)
    memory.copied.update(block for block in choice.table[first:] if block in memory.tree.runs)
    for block in reversed(choice.table[first:]):
        memory.give_back(block, choice.named)
    del choice.table[first:]
    choice.shared_blocks = min(choice.shared_blocks, first)
    choice.cursor = first * memory.block_tokens
    return woken


def come_back(memory: Memory, choice: Choice) -> list[int]:
    """Its blocks are reported to be in the pool again. Returns handles that waited for a prefix in them."""
    if choice.swapped is None:
        return []
    swapped, choice.swapped = choice.swapped, None
    memory.tier.give_back_all(swapped.held, {})
    choice.cursor = swapped.first * memory.block_tokens
    return tables.commit(memory, choice, swapped.tokens)
