"""A tree of named time as a flame graph: one SVG that a browser opens by itself, without a script or a font. Pure.

The whole is on top and as wide as the picture; what it consists of lies below, as wide as its share.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from libs.timeline.profile import Node

WIDTH: Final = 1200
ROW: Final = 20
CHARACTER: Final = 6.6  # of the font, on average
LEAST_WIDTH: Final = 0.3
TITLE: Final = 26
COLOURS: Final = {"kernels": "#e07b39", "python": "#4f8fc0", "link": "#6aa84f", "copies": "#a05fb0", "idle": "#b8bec6"}
OTHER_COLOUR: Final = "#9aa3ad"
STYLE: Final = "text { font: 12px monospace; fill: #101418; } rect { stroke: #fff; stroke-width: 0.5; }"


@dataclass(frozen=True, slots=True)
class Box:
    """A node's place, in pixels; `kind` is the part of a step that it belongs to."""

    node: Node
    left: float
    width: float
    row: int
    kind: str


def flame_svg(root: Node, title: str) -> str:
    """A whole SVG document; the exact time of each box shows when the pointer rests on it."""
    height = TITLE + ROW * root.depth
    svg = ElementTree.Element(
        "svg",
        {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {height}", "width": str(WIDTH)},
    )
    ElementTree.SubElement(svg, "style").text = STYLE
    ElementTree.SubElement(svg, "text", {"x": "4", "y": str(TITLE - 9)}).text = title
    for box in boxes(root):
        svg.append(_drawn(box, root.total_ns))
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def boxes(root: Node) -> Iterator[Box]:
    """Every node that is wide enough to be seen, from the top down; a node's children begin where it begins."""
    yield from _below(Box(root, 0.0, WIDTH, 0, ""))


def _below(box: Box) -> Iterator[Box]:
    yield box
    left = box.left
    for child in box.node.by_size():
        width = box.width * child.total_ns / max(1, box.node.total_ns)
        if width >= LEAST_WIDTH:
            kind = box.kind or (child.name if child.name in COLOURS else "")
            yield from _below(Box(child, left, width, box.row + 1, kind))
        left += width


def _drawn(box: Box, whole_ns: int) -> ElementTree.Element:
    group = ElementTree.Element("g")
    share = box.node.total_ns / max(1, whole_ns)
    ElementTree.SubElement(group, "title").text = f"{box.node.name}: {box.node.total_ns / 1e6:,.3f} ms, {share:.1%}"
    top = TITLE + ROW * box.row
    place = {"x": f"{box.left:.2f}", "y": str(top), "width": f"{box.width:.2f}", "height": str(ROW)}
    ElementTree.SubElement(group, "rect", {**place, "fill": COLOURS.get(box.kind, OTHER_COLOUR)})
    told = f"{box.node.name} {share:.1%}"
    room = int((box.width - 6) / CHARACTER)
    if room >= 3:
        text = {"x": f"{box.left + 3:.2f}", "y": str(top + ROW - 6)}
        ElementTree.SubElement(group, "text", text).text = told if len(told) <= room else told[: room - 1] + "…"
    return group
