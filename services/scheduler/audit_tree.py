"""Invariants of the prefix tree: what it says of blocks, of the choices that share them, and of who goes first."""

from collections.abc import Iterator
from itertools import pairwise

from services.scheduler.choice import Choice
from services.scheduler.memory import Memory
from services.scheduler.prefix import Run
from services.scheduler.state import State


def audit_tree(state: State) -> Iterator[str]:
    """What is wrong, one line each. O(tree)."""
    memory = state.memory
    below = [run for root in memory.tree.roots.values() for run in _below(root)]
    if {block: run for run in below for block in run.blocks} != memory.tree.runs:
        yield "the tree does not know where its blocks are"
    for run in below:
        yield from _run(memory, run)
        if run.ready < len(run.blocks) and not _computes(state.choices.get(run.owner), run):
            yield f"block {run.blocks[-1]} is pending, but nobody computes it"
    for choice in state.choices.values():
        if choice.shared_blocks and _path(memory, choice) != choice.table[: choice.shared_blocks]:
            yield f"{choice.request_id}: what it shares is not a path of the tree"
    yield from _shelves(memory)


def _below(run: Run) -> Iterator[Run]:
    """From the root down, without recursion: a path may be long."""
    stack = list(run.children)
    while stack:
        run = stack.pop()
        yield run
        stack += run.children


def _run(memory: Memory, run: Run) -> Iterator[str]:
    parent, size, references = run.parent, memory.block_tokens, memory.pool.references
    if not run.blocks or len(run.ids) != len(run.blocks) * size or not 0 <= run.ready <= len(run.blocks):
        yield f"a run of blocks {run.blocks} holds {len(run.ids)} tokens, {run.ready} blocks of it committed"
    if parent is None or run not in parent.children or run.start != parent.start + len(parent.blocks):
        yield f"the run of block {run.blocks[0]} is not where its parent says"
    if bool(run.owner) != (run.ready < len(run.blocks)) or (run.owner and run.children):
        yield f"the run of block {run.blocks[0]} has an owner and nothing pending, or the reverse, or more below"
    firsts = [child.ids[:size] for child in run.children]
    if firsts != sorted(firsts) or any(one == other for one, other in pairwise(firsts)):
        yield f"what follows block {run.blocks[-1]} is out of order, or there twice"
    before = [references[block] for block in run.blocks]
    if parent is not None and parent.blocks:
        before.insert(0, references[parent.blocks[-1]])
    if any(later and not earlier for earlier, later in pairwise(before)):
        yield f"a block of {run.blocks} is referenced, the one before it is not"
    if any(depth <= run.start + run.ready for depth in run.waiters.values()):
        yield f"somebody waits for what is committed in the run of block {run.blocks[0]}"


def _computes(choice: Choice | None, run: Run) -> bool:
    """Whether the choice runs, and its table has the run's last block where the tree has it."""
    last = run.start + len(run.blocks)
    return (
        choice is not None
        and bool(choice.worker)
        and choice.shared_blocks == last
        and choice.table[last - 1] == run.blocks[-1]
    )


def _path(memory: Memory, choice: Choice) -> list[int]:
    """The blocks in the tree from the root to the last one that a choice shares."""
    run: Run | None = memory.tree.runs.get(choice.table[choice.shared_blocks - 1])
    blocks: list[int] = []
    while run is not None:
        blocks[:0] = run.blocks
        run = run.parent
    return blocks[: choice.shared_blocks]


def _shelves(memory: Memory) -> Iterator[str]:
    """Whoever evicts in the shelves' order never takes a block before those that follow it."""
    shelves, runs, gone = memory.shelves, memory.tree.runs, set[int]()
    if {block for shelf in shelves.tenants.values() for block in shelf} != set(shelves.blocks):
        yield "shelves do not know their blocks"
    held = sum(min(len(shelf), shelves.bounds.floor) for shelf in shelves.tenants.values())
    if shelves.evictable("") != len(shelves) - min(held, shelves.bounds.held):
        yield "what floors hold does not add up"
    for tenant, shelf in shelves.tenants.items():
        for block in shelf:
            run = runs.get(block)
            if run is None or run.key.tenant != tenant or shelves.blocks[block] != tenant:
                yield f"block {block} rests with the wrong tenant"
                continue
            place = run.blocks.index(block) + 1
            follow = run.blocks[place : place + 1] or [child.blocks[0] for child in run.children]
            if not gone.issuperset(follow):
                yield f"block {block} would be evicted before a block that follows it"
            gone.add(block)
