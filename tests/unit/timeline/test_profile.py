"""Laps as a tree, as folded lines, and as a flame graph."""

from xml.etree import ElementTree

import pytest

from libs.timeline.flame import COLOURS, WIDTH, boxes, flame_svg
from libs.timeline.profile import folded, joined, tree

LAPS_NS = {"kernels;qkv": 40_000_000, "kernels;head": 30_000_000, "python;rows": 10_000_000, "idle": 20_000_000}
SVG = "{http://www.w3.org/2000/svg}"


def test_a_part_is_as_large_as_what_it_consists_of() -> None:
    """At every level, the largest first."""
    root = tree("decode-1", LAPS_NS)

    assert root.total_ns == 100_000_000 and root.depth == 3
    assert [(node.name, node.total_ns) for node in root.by_size()] == [
        ("kernels", 70_000_000),
        ("idle", 20_000_000),
        ("python", 10_000_000),
    ]
    assert [node.name for node in root.children["kernels"].by_size()] == ["qkv", "head"]


def test_folded_lines_hold_all_of_the_time() -> None:
    """A line a leaf, in microseconds: other tools add them up."""
    lines = folded(joined("workers", [tree("a", LAPS_NS), tree("b", {"idle": 5_000_000})])).splitlines()

    assert "workers;a;kernels;qkv 40000" in lines and "workers;b;idle 5000" in lines
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 105_000


def test_the_boxes_of_a_flame_graph_lie_below_what_they_are_part_of() -> None:
    """As wide as their share, side by side, none beyond its parent."""
    root = joined("workers", [tree("a", LAPS_NS), tree("b", {"idle": 100_000_000})])
    placed = {(box.row, box.node.name, box.left): box for box in boxes(root)}
    rows: dict[int, float] = {}
    for box in placed.values():
        rows[box.row] = rows.get(box.row, 0.0) + box.width
        assert box.left >= 0 and box.left + box.width <= WIDTH + 1e-6

    assert rows[0] == WIDTH and rows[1] == pytest.approx(WIDTH) and rows[2] == pytest.approx(WIDTH)
    assert placed[1, "a", 0.0].width == WIDTH / 2
    qkv = placed[3, "qkv", 0.0]
    assert qkv.width == pytest.approx(WIDTH / 2 * 0.4) and qkv.kind == "kernels"


def test_a_flame_graph_is_one_svg_that_needs_nothing_else() -> None:
    """Well-formed, no script, nothing from elsewhere; each box tells its time."""
    text = flame_svg(tree("decode-1", LAPS_NS), "12 steps in <1.0 s>")
    root = ElementTree.fromstring(text)

    titles = [title.text for title in root.iter(f"{SVG}title")]
    colours = {rect.get("fill") for rect in root.iter(f"{SVG}rect")}

    assert "qkv: 40.000 ms, 40.0%" in titles
    assert colours >= {COLOURS["kernels"], COLOURS["python"], COLOURS["idle"]}
    assert "script" not in text and "href" not in text and text.count("http") == 1


def test_nothing_is_a_picture_too() -> None:
    """Of a worker that did not answer a lap."""
    assert ElementTree.fromstring(flame_svg(tree("decode-1", {}), "nothing")) is not None
