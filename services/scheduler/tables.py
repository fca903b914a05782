"""The block tables of choices: what each holds of the memory, and which prefixes it shares with others."""

from collections.abc import Sequence
from dataclasses import replace

from services.scheduler import forking
from services.scheduler.choice import Choice
from services.scheduler.keeping import copy_tails
from services.scheduler.memory import Memory
from services.scheduler.prefix import Hit, Node
from services.scheduler.tail import Tail


def match(memory: Memory, choice: Choice) -> Hit:
    """What of its known ids is cached. Without a tail where the copy's source would be a block too many.

    One that kept blocks goes on from those.
    """
    if choice.keeps_blocks:
        return Hit((), None, None)
    hit = memory.tree.match(choice.sequence.tenant, choice.ids)
    if hit.tail is not None and len(choice.ids) // memory.block_tokens + 2 > memory.pool.total_blocks:
        return replace(hit, tail=None)
    return hit


def reserve(memory: Memory, choice: Choice, hit: Hit, fresh_blocks: int) -> bool:
    """Give a choice its table: the hit's blocks, then fresh ones. False, and nothing changed, if there is no room.

    Blocks that its known ids will fill become pending nodes, so that nobody computes them a second time.
    """
    memory.share(hit)
    if not memory.make_room(fresh_blocks):
        memory.unshare(hit)
        return False
    choice.path += hit.path
    choice.table += [node.block for node in hit.path]
    whole = len(choice.table)
    choice.table += memory.pool.take(fresh_blocks)
    choice.cursor = whole * memory.block_tokens
    tails = choice.tails if hit.tail is None else (Tail(hit.tail.block, memory.block_tokens - 1),)
    if tails:
        copy_tails(memory, choice, tails, whole)
    if len(choice.path) == whole:  # else what follows is its own alone
        _announce(memory, choice)
    return True


def adopt(memory: Memory, choice: Choice, table: Sequence[int], cursor: int) -> None:
    """Take over the blocks of a sequence that an older term's worker computes; its full ones may be shared."""
    memory.pool.claim(table)
    choice.table, choice.cursor = list(table), cursor
    for index in range(cursor // memory.block_tokens):
        node = memory.tree.child(choice.sequence.tenant, choice.path, memory.tree.tokens_of(choice.ids, index))
        if node is None:
            _extend(memory, choice, index, owner=0)
            memory.stored(choice.path[index])
        elif node.block == table[index]:
            choice.path.append(node)
        else:
            return


def grant(memory: Memory, choice: Choice, blocks: int) -> list[int]:
    """Append free blocks to a table; callers made room."""
    granted = memory.pool.take(blocks)
    choice.table += granted
    return granted


def commit(memory: Memory, choice: Choice, cursor: int) -> list[int]:
    """Everything below `cursor` is written: full blocks of known ids may be shared. Returns handles that waited.

    A choice whose block another one committed first keeps its own, and what follows it, to itmemory.
    """
    before, choice.cursor = choice.cursor, cursor
    full_blocks = min(cursor, len(choice.ids)) // memory.block_tokens
    woken: list[int] = []
    for index in range(before // memory.block_tokens, full_blocks):
        if index < len(choice.path):
            woken += _commit(memory, choice.path[index])
        elif index == len(choice.path) and _extend(memory, choice, index, owner=0):
            memory.stored(choice.path[index])
    return woken


def release(memory: Memory, choice: Choice) -> list[int]:
    """Take back all of a choice's blocks: nobody computes it any more. Returns handles that waited for it.

    Deepest first, so that the tree evicts leaves before what they stand on.
    """
    woken: list[int] = []
    copied(memory, choice)
    for tail in choice.tails:
        memory.give_back(tail.block, choice.named)
    choice.tails = ()
    for node in reversed(choice.path):
        if node.owner == choice.handle:
            woken += memory.tree.drop(node)
    for block in reversed(choice.table):
        memory.give_back(block, choice.named)
    forking.give_up_share(memory, choice)
    choice.path, choice.table, choice.named, choice.cursor, choice.reach = [], [], {}, 0, 0
    return woken


def copied(memory: Memory, choice: Choice) -> None:
    """The copies that a choice began with are done, or never will be: their sources are free of it."""
    for copy in choice.copies:
        memory.give_back(copy.source, {})
    choice.copies = ()


def _announce(memory: Memory, choice: Choice) -> None:
    """Blocks that its known ids will fill become pending nodes."""
    for index in range(len(choice.path), len(choice.ids) // memory.block_tokens):
        if not _extend(memory, choice, index, owner=choice.handle):
            return


def _extend(memory: Memory, choice: Choice, index: int, *, owner: int) -> bool:
    tokens = memory.tree.tokens_of(choice.ids, index)
    hashes = choice.sequence.block_hashes
    index_hash = hashes[index] if index < len(hashes) else b""
    return memory.tree.extend(
        choice.sequence.tenant, choice.path, tokens, choice.table[index], owner=owner, index_hash=index_hash
    )


def _commit(memory: Memory, node: Node) -> list[int]:
    if not node.owner:
        return []
    memory.stored(node)
    return memory.tree.commit(node)
