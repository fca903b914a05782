"""The fake engine's blocks in a real KV pool: shared memory that a supervisor made and other processes write as well.

A slot holds its token, its position and a digest of every token up to it. A reader of the first n positions checks all
of them, so a block that was overwritten, reused too early or never copied is found the moment that a row stands on it.
Slots are written before the fill counts that cover them, as a real engine does.
"""

import mmap
import os
import struct
from array import array
from collections.abc import Callable, Sequence

from libs.contracts.kv_layout import FILL_COUNTS_OFFSET, FIXED_HEADER, KvLayout, blocks_for

SLOT = struct.Struct("<IIQ")  # token, position, digest of the tokens up to here
SLOT_BYTES = SLOT.size
MASK = (1 << 64) - 1


def chained(digest: int, token: int) -> int:
    """The digest of a sequence that `token` follows."""
    return ((digest ^ token) * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) & MASK


class SharedPool:
    """One process's view. `on_corruption` is told what was found where; the row then computes on what is there."""

    def __init__(self, fd: int, layout: KvLayout, on_corruption: Callable[[str], object]) -> None:
        assert layout.token_bytes >= SLOT_BYTES, "a slot does not fit into a token's KV"
        self.layout, self.block_tokens = layout, layout.block_tokens
        self.blocks = layout.check_header(os.pread(fd, FIXED_HEADER.size, 0), os.fstat(fd).st_size)
        self._memory = mmap.mmap(fd, layout.pool_bytes(self.blocks))
        counts_end = FILL_COUNTS_OFFSET + 4 * self.blocks
        self.fill_counts_N = memoryview(self._memory)[FILL_COUNTS_OFFSET:counts_end].cast("I")
        self._on_corruption = on_corruption

    def reset(self, block_ids: Sequence[int]) -> None:
        for block in block_ids:
            self.fill_counts_N[block] = 0

    def copy(self, source: int, target: int, tokens: int) -> None:
        tokens = min(tokens, self.fill_counts_N[source])
        self.fill_counts_N[target] = 0
        start, size_bytes = self._offset(source), tokens * SLOT_BYTES
        self._memory[self._offset(target) : self._offset(target) + size_bytes] = self._memory[
            start : start + size_bytes
        ]
        self.fill_counts_N[target] = tokens

    def get_block(self, block: int) -> bytes:
        return self._memory[self._offset(block) : self._offset(block) + self.layout.block_bytes]

    def put_block(self, block: int, content: bytes) -> None:
        self._memory[self._offset(block) : self._offset(block) + self.layout.block_bytes] = content

    def write(self, block_table: Sequence[int], base: int, token_ids: Sequence[int]) -> None:
        """Slots base … base + len − 1, nothing published."""
        digest = self._digest_at(block_table, base - 1) if base else 0
        for position, token in enumerate(token_ids, base):
            digest = chained(digest, token)
            SLOT.pack_into(self._memory, self._slot(block_table, position), token, position, digest)

    def publish(self, block_table: Sequence[int], base: int, tokens: int) -> None:
        size = self.block_tokens
        for index in range(base // size, blocks_for(base + tokens, size)):
            self.fill_counts_N[block_table[index]] = min(base + tokens - index * size, size)

    def read(self, block_table: Sequence[int], tokens: int) -> "array[int]":
        """The ids of positions 0 … tokens − 1, each slot checked."""
        ids, digest = array("I"), 0
        for position in range(tokens):
            token, held_position, held_digest = SLOT.unpack_from(self._memory, self._slot(block_table, position))
            digest = chained(digest, token)
            if (held_position, held_digest) != (position, digest):
                block = block_table[position // self.block_tokens]
                self._on_corruption(f"block {block}: position {position} holds position {held_position} of another")
                digest = held_digest
            ids.append(token)
        return ids

    def check_filled(self, block_table: Sequence[int], tokens: int) -> None:
        """A row stands on these tokens: they must be published."""
        size = self.block_tokens
        for index, block in enumerate(block_table[: blocks_for(tokens, size)]):
            if self.fill_counts_N[block] < min(size, tokens - index * size):
                self._on_corruption(f"block {block}: {self.fill_counts_N[block]} tokens published, a row needs more")

    def _digest_at(self, block_table: Sequence[int], position: int) -> int:
        return int(SLOT.unpack_from(self._memory, self._slot(block_table, position))[2])

    def _slot(self, block_table: Sequence[int], position: int) -> int:
        block, offset = block_table[position // self.block_tokens], position % self.block_tokens
        return self._offset(block) + offset * SLOT_BYTES

    def _offset(self, block: int) -> int:
        return self.layout.header_bytes(self.blocks) + block * self.layout.block_bytes


class SharedTier:
    """The host tier of a SharedPool, in shared memory of the same layout."""

    def __init__(self, fd: int, pool: SharedPool) -> None:
        self._pool, self._rest = pool, SharedPool(fd, pool.layout, lambda what: None)

    @property
    def blocks(self) -> int:
        return self._rest.blocks

    def swap_out(self, block: int, host_block: int) -> None:
        _copy(self._pool, block, self._rest, host_block)

    def swap_in(self, block: int, host_block: int) -> None:
        _copy(self._rest, host_block, self._pool, block)


def _copy(source: SharedPool, block: int, target: SharedPool, copied: int) -> None:
    target.fill_counts_N[copied] = 0
    target.put_block(copied, source.get_block(block))
    target.fill_counts_N[copied] = source.fill_counts_N[block]
