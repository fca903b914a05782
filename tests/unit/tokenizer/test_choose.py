"""Which cell a prompt goes to."""

from dataclasses import replace

import pytest

from libs.contracts.messages import CellRecord
from services.tokenizer.choose import Load, choose_cell, fitting_cells, largest_prompt_tokens, open_cells


def cell(name: str, max_prompt_tokens: int = 0) -> CellRecord:
    return CellRecord("m", name, 1, "s", "", 16, "digest", max_prompt_tokens)


@pytest.mark.parametrize(
    ("known_blocks", "chosen"),
    [
        ({}, "c0"),
        ({"c1": 1}, "c1"),
        ({"c0": 2, "c1": 3, "c2": 3}, "c1"),
        ({"c9": 99, "c2": 1}, "c2"),
    ],
)
def test_the_longest_known_prefix_wins_then_the_first_name(known_blocks: dict[str, int], chosen: str) -> None:
    """What the index says of cells that are not there does not matter, nor does the order of the records."""
    cells = [cell("c2"), cell("c0"), cell("c1")]

    assert choose_cell(cells, known_blocks).cell == chosen


def test_cells_too_small_for_the_prompt_are_left_out() -> None:
    """One that has not told its size yet may be large enough."""
    cells = [cell("small", 100), cell("large", 200), cell("unknown")]

    assert [found.cell for found in fitting_cells(cells, 150)] == ["large", "unknown"]
    assert fitting_cells(cells[:2], 201) == ()
    assert largest_prompt_tokens(cells) == 200


def test_a_cell_without_workers_is_not_open() -> None:
    """Its scheduler has begun its term and does not know its blocks yet."""
    assert open_cells([replace(cell("c0"), block_tokens=0), cell("c1")]) == (cell("c1"),)


@pytest.mark.parametrize(
    ("known_blocks", "loads", "chosen"),
    [
        ({}, {"c0": Load(0, 3), "c1": Load(0, 2), "c2": Load(0, 2)}, "c1"),
        ({}, {"c0": Load(1, 0), "c1": Load(0, 9), "c2": Load(2, 0)}, "c1"),
        ({"c0": 4}, {"c0": Load(0, 9), "c1": Load(0, 0), "c2": Load(0, 0)}, "c0"),
        ({"c0": 4}, {"c0": Load(1, 9), "c1": Load(0, 1), "c2": Load(0, 0)}, "c2"),
        ({"c0": 6}, {"c1": Load(0, 0), "c2": Load(5, 0)}, "c1"),
        ({"c0": 1}, {}, "c0"),
    ],
)
def test_a_prefix_counts_as_much_as_who_waits(
    known_blocks: dict[str, int], loads: dict[str, Load], chosen: str
) -> None:
    """Of 100 tokens; the cell that says nothing is passed over, unless none says anything."""
    cells = [cell("c2"), cell("c0"), cell("c1")]

    assert choose_cell(cells, known_blocks, loads, 100).cell == chosen
