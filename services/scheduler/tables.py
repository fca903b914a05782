"""The block tables of choices: what each holds of the memory, and which prefixes it shares with others."""

from collections.abc import Sequence
from dataclasses import replace

from libs.contracts.messages import BlockCopy
from services.scheduler import forking
from services.scheduler.choice import Choice
from services.scheduler.keeping import abandon, copy_tails, deepest_run, leave_tier
from services.scheduler.memory import Memory
from services.scheduler.prefix import NO_BLOCK, Hit, common_tokens
from services.scheduler.swapped import Swapped


def match(memory: Memory, choice: Choice) -> Hit:
    """What of its known ids is cached. Without a tail where the copy's source would be a block too many.

    One that kept blocks goes on from those.
    """
    if choice.swapped is not None:
        return _still_there(memory, choice, choice.swapped)
    if choice.keeps_blocks or not memory.caching.is_on:
        return Hit()
    known = choice.ids[: choice.may_skip + 1] if choice.is_unscored else choice.ids
    hit = memory.tree.match(choice.key, known)
    if hit.tail is not None and len(choice.ids) // memory.block_tokens + 2 > memory.pool.total_blocks:
        return replace(hit, tail=None)
    return hit


def reserve(memory: Memory, choice: Choice, hit: Hit, fresh_blocks: int, wanting: str | None) -> bool:
    """Give a choice its table: the hit's blocks, then fresh ones. False, and nothing changed, if there is no room.

    Blocks that its known ids will fill become pending, so that nobody computes them a second time.
    """
    memory.share(hit)
    if not memory.make_room(fresh_blocks, wanting):
        memory.unshare(hit)
        return False
    choice.shared_blocks += len(hit.blocks)
    choice.table += hit.blocks
    whole = len(choice.table)
    choice.table += memory.pool.take(fresh_blocks)
    choice.cursor = whole * memory.block_tokens
    if hit.rested:
        memory.tier.reference(hit.rested)
        tokens = min(len(hit.rested) * memory.block_tokens, len(choice.ids) - 1)
        choice.swapped = Swapped(0, hit.rested, tokens)
    if hit.tail is not None:
        choice.copies = (BlockCopy(hit.tail.block, choice.table[whole], hit.tail.tokens),)
        choice.cursor += hit.tail.tokens
        choice.reach = choice.cursor
    elif choice.swapped is not None:
        choice.cursor = choice.swapped.tokens
        _leave_behind(memory, choice, choice.swapped, whole)
    elif choice.tails:
        copy_tails(memory, choice, choice.tails, whole)
    if choice.shared_blocks == whole:  # else what follows is its own alone
        _extend(memory, choice, len(choice.ids) // memory.block_tokens, owner=choice.handle)
    return True


def adopt(memory: Memory, choice: Choice, table: Sequence[int], cursor: int) -> None:
    """Take over the blocks of a sequence that an older term's worker computes; its full ones may be shared."""
    memory.pool.claim(table)
    choice.table, choice.cursor = list(table), cursor
    full_blocks = cursor // memory.block_tokens
    known = memory.tree.path(choice.key, choice.ids[: full_blocks * memory.block_tokens])
    choice.shared_blocks = common_tokens(known, choice.table)
    if choice.shared_blocks == len(known):
        _extend(memory, choice, full_blocks, owner=0)


def grant(memory: Memory, choice: Choice, blocks: int) -> list[int]:
    """Append free blocks to a table; callers made room."""
    granted = memory.pool.take(blocks)
    choice.table += granted
    return granted


def commit(memory: Memory, choice: Choice, cursor: int) -> list[int]:
    """Everything below `cursor` is written: full blocks of known ids may be shared. Returns handles that waited.

    A choice whose block another one committed first keeps its own, and what follows it, to itself.
    """
    before, choice.cursor = choice.cursor // memory.block_tokens, cursor
    full_blocks = min(cursor, len(choice.ids)) // memory.block_tokens
    if full_blocks == before:
        return []
    woken, shared = [], choice.shared_blocks
    if before < shared:  # its own, and pending
        depth = min(full_blocks, shared)
        woken = memory.tree.commit(deepest_run(memory, choice), depth)
        memory.stored(choice.table[before:depth], choice.sequence.block_hashes[before:depth])
    if before <= shared < full_blocks:
        _extend(memory, choice, full_blocks, owner=0)
    return woken


def release(memory: Memory, choice: Choice) -> list[int]:
    """Take back all of a choice's blocks: nobody computes it any more. Returns handles that waited for it.

    Deepest first, so that leaves are evicted before what they stand on.
    """
    copied(memory, choice)
    leave_tier(memory, choice)
    for tail in choice.tails:
        memory.give_back(tail.block, choice.named)
    choice.tails = ()
    woken = abandon(memory, choice)
    for block in reversed(choice.table):
        memory.give_back(block, choice.named)
    forking.give_up_stake(memory, choice)
    choice.table, choice.named, choice.cursor, choice.reach, choice.shared_blocks = [], {}, 0, 0, 0
    return woken


def copied(memory: Memory, choice: Choice) -> None:
    """The copies that a choice began with are done, or never will be: their sources are free of it."""
    for copy in choice.copies:
        memory.give_back(copy.source, {})
    choice.copies = ()


def _still_there(memory: Memory, choice: Choice, swapped: Swapped) -> Hit:
    """Of what rests in the host tier, the first blocks that nobody has evicted from the pool."""
    whole_tokens = swapped.tokens // memory.block_tokens * memory.block_tokens
    hit = memory.tree.match(choice.key, choice.ids[: whole_tokens + 1])
    if hit.pending is not None or list(hit.blocks[: swapped.first]) != choice.table[: choice.shared_blocks]:
        return Hit()
    return Hit(hit.blocks[swapped.first :])


def _leave_behind(memory: Memory, choice: Choice, swapped: Swapped, whole: int) -> None:
    """The first `whole` blocks of its table are there: only what follows has to come back."""
    choice.swapped = swapped.behind(whole)
    if not choice.swapped.host_blocks:
        leave_tier(memory, choice)


def _extend(memory: Memory, choice: Choice, full_blocks: int, *, owner: int) -> None:
    """Share its blocks up to the first `full_blocks`, unless others hold the next one's tokens already."""
    first, tree, size = choice.shared_blocks, memory.tree, memory.block_tokens
    if first >= full_blocks or not memory.caching.is_on:
        return
    blocks = choice.table[first:full_blocks]
    after = choice.table[first - 1] if first else NO_BLOCK
    if not tree.insert(choice.key, after, first, choice.ids[first * size : full_blocks * size], blocks, owner=owner):
        return
    choice.shared_blocks = full_blocks
    if not owner:
        memory.stored(blocks, choice.sequence.block_hashes[first:full_blocks])
