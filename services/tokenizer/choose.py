"""Chooses the cell for a prompt. Pure."""

from collections.abc import Mapping, Sequence

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


def choose_cell(cells: Sequence[CellRecord], known_blocks: Mapping[str, int]) -> CellRecord:
    """The cell that holds the longest prefix of the prompt; among equals the first by name, so that it stays the same.

    `known_blocks` maps a cell's name to the leading blocks that the index knows there. `cells` is not empty.
    """
    return min(cells, key=lambda cell: (-known_blocks.get(cell.cell, 0), cell.cell))
