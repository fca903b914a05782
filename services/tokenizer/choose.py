"""Chooses the cell for a prompt. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from libs.contracts.messages import CellRecord


def open_cells(cells: Sequence[CellRecord]) -> tuple[CellRecord, ...]:
    """Those whose scheduler knows its blocks: at the start of a term it waits for a worker's Hello."""
    return tuple(cell for cell in cells if cell.block_tokens)


def fitting_cells(cells: Sequence[CellRecord], prompt_tokens: int) -> tuple[CellRecord, ...]:
    """Those that can hold the prompt; a cell that has not told its size yet (0) may."""
    return tuple(cell for cell in cells if not 0 < cell.max_prompt_tokens < prompt_tokens)


def largest_prompt_tokens(cells: Sequence[CellRecord]) -> int:
    """The longest prompt that any of `cells` can hold."""
    return max(cell.max_prompt_tokens for cell in cells)


@dataclass(frozen=True, slots=True)
class Load:
    """What a cell's scheduler has: requests that wait for room, and those that run."""

    waiting: int = 0
    running: int = 0


def choose_cell(
    cells: Sequence[CellRecord],
    known_blocks: Mapping[str, int],
    loads: Mapping[str, Load] = MappingProxyType({}),
    prompt_tokens: int = 0,
) -> CellRecord:
    """The cell that has least to compute before this prompt's answer begins: what it does not hold of the prompt, and
    whoever waits there, each taken for as long as this one. Among equals who runs least, then the first by name.

    `known_blocks` maps a cell's name to the leading blocks that the index knows there, `loads` to how busy it is. Of
    `cells`, which is not empty, those that say nothing are not chosen while others do.
    """

    def cost(cell: CellRecord) -> tuple[int, int, str]:
        load = loads.get(cell.cell, NOTHING)
        held_tokens = known_blocks.get(cell.cell, 0) * cell.block_tokens
        return load.waiting * prompt_tokens - held_tokens, load.running, cell.cell

    return min([cell for cell in cells if cell.cell in loads] or cells, key=cost)


NOTHING: Final = Load()
