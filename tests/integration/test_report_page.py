"""Pages that are written for people, opened in a browser: what is meant to be seen is there to be seen."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bench.page import COLOURS, page
from libs.timeline.flame import COLOURS as PARTS
from libs.timeline.flame import flame_svg
from libs.timeline.profile import tree
from tests.integration.chromium import Rect, chromium
from tests.unit.bench.reports import report, run

pytestmark = pytest.mark.integration

CLOSE = 24  # of a colour, in each of red, green and blue: edges are smoothed
DOT, THIN_LINE = (
    (0.5, 0.6),
    (0.45, 0.75),
)  # how much of a pixel is of the colour; of a thin line it depends on its place


def seen(pixels: npt.NDArray[np.uint8], colour: str, cover: tuple[float, float] = (1.0, 1.0)) -> int:
    """How many pixels have about this colour, over white, that covers them so far."""
    short = 255 - np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    missing = 255 - pixels.astype(float)
    covered = np.clip(missing @ short / (short @ short), *cover)
    return int((np.abs(missing - covered[:, :, None] * short).max(axis=2) <= CLOSE).sum())


async def test_the_bench_page_shows_its_plots(tmp_path: Path) -> None:
    """Dots and median of every side, a curve of each run; no error, and nothing is loaded from elsewhere."""
    rounds = [(0, 20.0, 40.0), (1, 22.0, 43.0), (2, 21.0, 41.0)]
    runs = [run(n, side, ms) for n, ours, theirs in rounds for side, ms in (("headrace", ours), ("peer", theirs))]
    path = tmp_path / "report.html"
    path.write_text(page(report(*runs)), encoding="utf-8")

    async with chromium(tmp_path / "profile") as browser:
        await browser.open(path)
        plots = [await browser.pixels(rect) for rect in await browser.rects("figure svg")]

    assert len(plots) == 3
    for plot in plots[:2]:
        assert seen(plot, COLOURS[0]) >= 30 and seen(plot, COLOURS[1]) >= 30  # thick marks of the medians
        assert seen(plot, COLOURS[0], DOT) >= 30 and seen(plot, COLOURS[1], DOT) >= 30  # dots
        assert seen(plot, COLOURS[2]) == 0  # of a side that there is not
    assert all(seen(plots[2], colour, THIN_LINE) >= 200 for colour in COLOURS[:2])
    assert browser.requests == [path.as_uri()]
    assert browser.notices == []


async def test_a_flame_graph_opens_by_itself(tmp_path: Path) -> None:
    """Its boxes have the size of their share."""
    laps_ns = {"kernels;qkv": 60_000_000, "python;rows": 30_000_000, "idle": 10_000_000}
    path = tmp_path / "flame.svg"
    path.write_text(flame_svg(tree("decode-1", laps_ns), "three steps"), encoding="utf-8")

    async with chromium(tmp_path / "profile") as browser:
        await browser.open(path)
        (whole,) = await browser.rects("svg")
        widths = [rect.width for rect in await browser.rects("rect")]
        pixels = await browser.pixels(Rect(whole.x, whole.y, whole.width, whole.height))

    assert widths[1] == pytest.approx(0.6 * widths[0], abs=1)
    shares = {name: seen(pixels, PARTS[name]) for name in ("kernels", "python", "idle")}
    assert shares["kernels"] > shares["python"] > shares["idle"] > 1000
    assert browser.requests == [path.as_uri()] and browser.notices == []
