"""Refuses orders that name what is not there: a block outside the pool would be a write into foreign memory.

An id outside the vocabulary is no fault of the order: that sequence alone ends (residents.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from libs.contracts.errors import MalformedMessage
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import Delta, Resident, Snapshot, Swap


@dataclass(frozen=True, slots=True)
class OrderLimits:
    """The bounds of one worker's model and pool."""

    pool_blocks: int
    block_tokens: int
    max_model_len: int
    host_blocks: int = 0  # of the host tier; 0: there is none

    def check(self, order: Snapshot | Delta) -> None:
        """Raises MalformedMessage when the order cannot be carried out here."""
        residents = order.residents if isinstance(order, Snapshot) else order.added
        for resident in residents:
            self._check_resident(resident)
        if isinstance(order, Delta):
            for grant in order.grants:
                self._check_blocks(grant.block_ids)
            for copy in order.copies:
                self._check_blocks((copy.source, copy.target))
                if copy.tokens > self.block_tokens:
                    raise MalformedMessage("a copy of more tokens than a block holds")
            for swap in (*order.swap_outs, *order.swap_ins):
                self._check_swap(swap)

    def _check_resident(self, resident: Resident) -> None:
        self._check_blocks(resident.block_table)
        where = f"sequence {resident.sequence}"
        if not 1 <= resident.prompt_tokens <= len(resident.ids) <= self.max_model_len:
            raise MalformedMessage(f"{where}: between one token and the context, prompt first")
        if resident.cursor >= len(resident.ids):
            raise MalformedMessage(f"{where}: nothing to commit")
        if blocks_for(resident.cursor, self.block_tokens) > len(resident.block_table):
            raise MalformedMessage(f"{where}: committed tokens without a block")
        if resident.reach >= len(resident.ids) or resident.reach > len(resident.block_table) * self.block_tokens:
            raise MalformedMessage(f"{where}: it cannot begin behind what it knows, or beyond its blocks")

    def _check_swap(self, swap: Swap) -> None:
        self._check_blocks(swap.blocks)
        if len(swap.blocks) != len(swap.host_blocks):
            raise MalformedMessage("a swap pairs each block with one of the host tier")
        if max(swap.host_blocks, default=-1) >= self.host_blocks:
            raise MalformedMessage("a block outside the host tier")

    def _check_blocks(self, block_ids: Iterable[int]) -> None:
        if max(block_ids, default=0) >= self.pool_blocks:
            raise MalformedMessage("a block outside the pool")
