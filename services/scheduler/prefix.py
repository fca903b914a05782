"""The prefix tree: which blocks hold which tokens, per key.

A radix tree over token ids. Its edges are *runs* of blocks in a row; a run is split at the end of the last block that
two prompts share, so a path costs what it branches, not what it is long (Morrison's PATRICIA, 1968; over KV blocks, as
in SGLang's RadixAttention, arXiv:2312.07104). Tokens are compared, never hashes of them. Prompts that part inside a
block each have a block of their own, below the same run; runs below one are in the order of their ids, so the one that
shares most with a prompt is beside the place where the prompt would be.

A block is *pending* from the admission of the choice that computes it (its owner) until a step has committed its last
token; nobody else may read it before. Pending blocks are the last of their run, and nothing is below them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.scheduler.tail import Tail

NO_BLOCK = -1  # before the first of a path


class Key(NamedTuple):
    """Who may share: those with the same one. Model, tokenizer and numerics are the cell's own, and so is its tree."""

    tenant: str
    adapter: str = ""
    salt: str = ""


@dataclass(slots=True, eq=False)
class Run:
    """Blocks in a row. A root has none, and no parent."""

    key: Key
    parent: "Run | None"
    start: int  # blocks before it
    ids: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    ready: int = 0  # how many of its blocks are committed; the others are pending
    owner: int = 0  # handle of the choice that computes those; 0 where there are none
    children: list["Run"] = field(default_factory=list)  # by ids
    waiters: dict[int, int] = field(default_factory=dict)  # handle → how many blocks from the root it waits for


class Awaited(NamedTuple):
    """What a choice is parked for: that so many blocks from the root are committed, or the rest is gone."""

    run: Run
    depth: int

    def park(self, handle: int) -> None:
        self.run.waiters[handle] = self.depth

    def unpark(self, handle: int) -> None:
        del self.run.waiters[handle]


@dataclass(frozen=True, slots=True)
class Hit:
    """What of a prompt is there: whole blocks to share, and a tail of which the first tokens are to be copied.

    `pending` is set when another choice still computes some of it; then the rest is of no use yet.
    """

    blocks: tuple[int, ...] = ()
    tail: Tail | None = None
    pending: Awaited | None = None
    rested: tuple[int, ...] = ()  # more of it in the host tier: blocks there, from the first of the prompt on


class PrefixTree:
    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.runs: dict[int, Run] = {}  # by block
        self.roots: dict[Key, Run] = {}

    def match(self, key: Key, ids: list[int]) -> Hit:
        """The longest committed prefix of `ids`, short of its last token: that one is computed, to sample after it."""
        blocks, run, common = self._descend(key, ids)
        depth = len(blocks)
        if run is not None and depth > run.start + run.ready:
            return Hit(pending=Awaited(run, depth))
        tail = None
        if depth and depth * self.block_tokens == len(ids):
            tail = Tail(blocks.pop(), self.block_tokens - 1)
        elif run is not None and depth < run.start + run.ready:
            tokens = min(common - (depth - run.start) * self.block_tokens, len(ids) - 1 - depth * self.block_tokens)
            tail = Tail(run.blocks[depth - run.start], tokens)
        if tail is not None and tail.tokens < max(1, self.block_tokens // 4):
            tail = None  # to compute so few costs less than to order the copy
        return Hit(tuple(blocks), tail)

    def path(self, key: Key, ids: list[int]) -> list[int]:
        """The blocks of all whole blocks of `ids` that are there, from the first on."""
        return self._descend(key, ids)[0]

    def insert(self, key: Key, after: int, depth: int, ids: list[int], blocks: Sequence[int], *, owner: int) -> bool:
        """Add blocks that hold `ids` behind the block `after`, which is `depth` blocks from the root.

        They are pending with an owner, committed with 0. False, and nothing changed, when another block holds the first
        one's tokens already.
        """
        run = self.runs[after] if depth else self.roots.setdefault(key, Run(key, None, 0))
        offset = depth - run.start
        if offset < len(run.blocks):
            if _first(run.ids, offset, self.block_tokens) == ids[: self.block_tokens]:
                return False
            run = self._split(run, offset)
        place = bisect_left(run.children, ids, key=_ids)
        if any(_begins_alike(child, ids, self.block_tokens) for child in run.children[max(place - 1, 0) : place + 1]):
            return False
        if run.parent is None or run.children:
            below = Run(run.key, run, depth)
            run.children.insert(place, below)
            run = below
        run.ids += ids
        run.blocks += blocks
        run.owner = owner
        if not owner:
            run.ready = len(run.blocks)
        self.runs.update(dict.fromkeys(blocks, run))
        return True

    def commit(self, run: Run, depth: int) -> list[int]:
        """Its blocks may be read from now on, as far as `depth` from the root. Returns the handles that waited."""
        run.ready = depth - run.start
        if run.ready == len(run.blocks):
            run.owner = 0
        woken = [handle for handle, wanted in run.waiters.items() if wanted <= depth]
        for handle in woken:
            del run.waiters[handle]
        return woken

    def abandon(self, run: Run) -> list[int]:
        """Its owner goes: its pending blocks vanish. Returns the handles that waited for them."""
        woken = list(run.waiters)
        run.waiters.clear()
        self._cut(run, run.ready)
        run.owner = 0
        return woken

    def evict(self, block: int) -> None:
        """Forget the last block of a run below which there is nothing."""
        run = self.runs[block]
        assert run.blocks[-1] == block and not run.children and not run.owner
        run.ready -= 1
        self._cut(run, run.ready)

    def _descend(self, key: Key, ids: list[int]) -> tuple[list[int], Run | None, int]:
        """The whole blocks that hold `ids`; the run where that ends, and how many tokens of it are the same."""
        run, common, blocks = self.roots.get(key), 0, list[int]()
        while run is not None and common == len(run.ids):
            child, common_below = self._nearest(run, ids, len(blocks) * self.block_tokens)
            if child is None:
                break
            run, common = child, common_below
            blocks += run.blocks[: common // self.block_tokens]
        return blocks, run, common

    def _nearest(self, run: Run, ids: list[int], at: int) -> tuple[Run | None, int]:
        """Of the runs below, the one that shares most with the ids from `at` on, and how many; None when none does."""
        place = bisect_left(run.children, ids[at : at + self.block_tokens], key=_ids)
        nearest, most = None, 0
        for child in run.children[max(place - 1, 0) : place + 1]:
            common = common_tokens(child.ids, ids[at : at + len(child.ids)])
            if common > most:
                nearest, most = child, common
        return nearest, most

    def _split(self, run: Run, offset: int) -> Run:
        """Part a run behind its first blocks, which are committed. Returns these; the run keeps the others."""
        assert run.parent is not None and offset <= run.ready
        tokens = offset * self.block_tokens
        place = bisect_left(run.parent.children, run.ids, key=_ids)
        upper = Run(run.key, run.parent, run.start, run.ids[:tokens], run.blocks[:offset], offset, children=[run])
        run.parent.children[place] = run.parent = upper
        run.start += offset
        run.ready -= offset
        del run.ids[:tokens], run.blocks[:offset]
        self.runs.update(dict.fromkeys(upper.blocks, upper))
        return upper

    def _cut(self, run: Run, blocks: int) -> None:
        """Keep the first `blocks` of a run; without any it goes, and so does a root without runs."""
        assert run.parent is not None and not run.children
        for block in run.blocks[blocks:]:
            del self.runs[block]
        if not blocks:
            siblings = run.parent.children
            del siblings[bisect_left(siblings, run.ids, key=_ids)]
            if run.parent.parent is None and not siblings:
                del self.roots[run.key]
        del run.ids[blocks * self.block_tokens :], run.blocks[blocks:]


def common_tokens(left: list[int], right: list[int]) -> int:
    """How many tokens they begin with in common. By halving, so that whole stretches are compared at once."""
    same, end = 0, min(len(left), len(right))
    if left[:end] == right[:end]:
        return end
    while end - same > 1:  # the first `same` are equal, the first `end` are not
        middle = (same + end) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            end = middle
    return same


def _ids(run: Run) -> list[int]:
    return run.ids


def _first(ids: list[int], offset: int, block_tokens: int) -> list[int]:
    return ids[offset * block_tokens : (offset + 1) * block_tokens]


def _begins_alike(run: Run, ids: list[int], block_tokens: int) -> bool:
    return run.ids[:block_tokens] == ids[:block_tokens]
