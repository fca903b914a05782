"""Who may write which block of the pool: every block is free, cached, held or freeing.

A block nobody references is not free at once: a worker may still run a step whose order names it. It notes, per live
incarnation whose orders named it, the version that removed it there, and is *freeing* until each has begun that version
or is gone; the grace periods of read-copy-update are the same idea (McKenney and Slingwine, 1998). A cached block keeps
its notes until it is evicted: reading it is safe at any time.
"""

from collections.abc import Iterable, Mapping

Named = Mapping[str, int]  # incarnation → the version whose taking ends its use of a block


class BlockPool:
    """Counts and states of the blocks 0 … total − 1. It does not know what is in them."""

    def __init__(self, total_blocks: int) -> None:
        self.total_blocks = total_blocks
        self.references = [0] * total_blocks
        self.cached: set[int] = set()
        self.freeing: set[int] = set()
        self._free = list(range(total_blocks - 1, -1, -1))
        self._named: dict[int, dict[str, int]] = {}  # block → unmet notes; absent when there is none
        self._awaiting: dict[str, dict[int, list[int]]] = {}  # incarnation → version → freeing blocks that wait for it
        self._began: dict[str, int] = {}

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def held_blocks(self) -> int:
        return self.total_blocks - len(self._free) - len(self.cached) - len(self.freeing)

    def free(self) -> tuple[int, ...]:
        return tuple(self._free)

    def take(self, count: int) -> list[int]:
        """`count` free blocks, referenced once each."""
        assert count <= len(self._free), "callers make room first"
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self.references[block] = 1
        return taken

    def claim(self, blocks: Iterable[int]) -> None:
        """One user more of blocks that a worker already uses; free ones are so no longer. O(free blocks)."""
        for block in blocks:
            self.references[block] += 1
        self._free = [block for block in self._free if not self.references[block]]

    def reference(self, block: int) -> None:
        """One more user of a held or cached block."""
        self.references[block] += 1
        self.cached.discard(block)

    def dereference(self, block: int, named: Named) -> bool:
        """One user less, whose workers `named` it. True for the last: the caller then caches or discards the block."""
        self._note(block, named)
        self.references[block] -= 1
        assert self.references[block] >= 0, block
        return self.references[block] == 0

    def cache(self, block: int) -> None:
        """Keep an unreferenced block for its content."""
        self.cached.add(block)

    def discard(self, block: int) -> None:
        """Give up an unreferenced block's content; it is free as soon as no order can name it."""
        self.cached.discard(block)
        self.freeing.add(block)
        self._free_or_await(block)

    def attach(self, incarnation: str, version: int) -> None:
        """Know a worker that has begun `version`; notes about unknown incarnations count as met."""
        self._began[incarnation] = version

    def begin(self, incarnation: str, version: int) -> None:
        """The worker has begun `version`: what waited for it, or for an older one, moves on."""
        self._began[incarnation] = max(version, self._began.get(incarnation, 0))
        awaiting = self._awaiting.get(incarnation, {})
        for met in [awaited for awaited in awaiting if awaited <= version]:
            self._recheck(awaiting.pop(met))

    def forget(self, incarnation: str) -> None:
        """The worker's process no longer exists: it names nothing."""
        self._began.pop(incarnation, None)
        for blocks in self._awaiting.pop(incarnation, {}).values():
            self._recheck(blocks)

    def _note(self, block: int, named: Named) -> None:
        unmet = {worker: version for worker, version in named.items() if self._began.get(worker, version) < version}
        if unmet:
            notes = self._named.setdefault(block, {})
            for worker, version in unmet.items():
                notes[worker] = max(version, notes.get(worker, 0))

    def _recheck(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._free_or_await(block)

    def _free_or_await(self, block: int) -> None:
        """A freeing block waits for one unmet note at a time, so each is looked at once per note."""
        for worker, version in self._named.get(block, {}).items():
            if self._began.get(worker, version) < version:
                self._awaiting.setdefault(worker, {}).setdefault(version, []).append(block)
                return
        self._named.pop(block, None)
        self.freeing.discard(block)
        self._free.append(block)
