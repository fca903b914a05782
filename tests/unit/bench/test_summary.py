"""Medians, paired ratios and dropped rounds, and how tables and pages tell them."""

from html.parser import HTMLParser
from xml.etree import ElementTree

import msgspec
import pytest

from bench.page import page
from bench.summary import dropped, pairs, rows
from bench.table import number, report_table
from tests.unit.bench.reports import report, run

SVG = "{http://www.w3.org/2000/svg}"


def test_a_ratio_is_the_median_over_rounds_and_not_of_medians() -> None:
    """A round in which the machine was slow for both sides leaves the ratio as it is."""
    found = rows(
        report(
            *(run(n, "headrace", ms) for n, ms in enumerate((10, 40, 12))),
            *(run(n, "peer", ms) for n, ms in enumerate((20, 80, 24))),
        )
    )

    ratio = found[0].ratios["peer"]
    assert (ratio.median, ratio.low, ratio.high, ratio.pairs) == pytest.approx((2, 2, 2, 3))
    assert found[0].values["headrace"].median == 12
    assert found[1].ratios["peer"].median == pytest.approx(2)


def test_a_ratio_has_the_interval_of_its_median() -> None:
    """Of eight pairs the second lowest to the second highest."""
    times = [(run(n, "headrace", 10), run(n, "peer", ms)) for n, ms in enumerate((5, 20, 21, 22, 23, 24, 25, 90))]

    ratio = rows(report(*(one for pair in times for one in pair)))[0].ratios["peer"]

    assert (ratio.median, ratio.low, ratio.high, ratio.pairs) == pytest.approx((2.25, 2.0, 2.5, 8))


def test_pairs_whose_probes_differ_are_dropped() -> None:
    """Ten per cent is the most by which the machine may change between the two sides of a round."""
    ours = [run(0, "headrace", 10), run(1, "headrace", 10)]
    theirs = [run(0, "peer", 20, read_gb_s=27.5), run(1, "peer", 20, read_gb_s=27.0)]

    kept = pairs([*ours, *theirs], "headrace", "peer")

    assert [one.round for one, _ in kept] == [0]
    assert dropped(report(*ours, *theirs)) == 1


def test_a_run_during_which_the_machine_changed_makes_no_pair() -> None:
    """Nobody knows which part of it was of which machine."""
    runs = [run(0, "headrace", 10), run(0, "peer", 20, after_gb_s=45.0), run(1, "headrace", 10), run(1, "peer", 20)]

    assert [one.round for one, _ in pairs(runs, "headrace", "peer")] == [1]


def test_a_report_without_probes_behind_its_runs_still_has_pairs() -> None:
    """Older files have none."""
    runs = [msgspec.structs.replace(run(0, side, 10), after=None) for side in ("headrace", "peer")]

    assert len(pairs(runs, "headrace", "peer")) == 1


def test_a_round_that_one_side_did_not_run_is_no_pair() -> None:
    """Nor is the same round of another scenario."""
    runs = [run(0, "headrace", 10), run(0, "peer", 10, scenario="S2"), run(1, "peer", 10)]

    assert pairs(runs, "headrace", "peer") == []


def test_the_fraction_of_the_limit_is_that_of_each_run() -> None:
    """A limit of 10 ms met with 20 ms is half reached."""
    assert rows(report(run(0, "headrace", 20), peers=()))[0].values["headrace"].reached == 0.5


def test_the_table_has_limits_fractions_and_ratios() -> None:
    """One line a figure, and below it how many pairs count."""
    table = report_table(report(run(0, "headrace", 20), run(0, "peer", 40)))

    assert "20.0 (50%)" in table
    assert "2.00 (2.00 to 2.00) [1]" in table
    assert "0 pairs dropped" in table


def test_numbers_keep_three_digits() -> None:
    """Thousands in full, nothing as a dash."""
    assert [number(n) for n in (0.0123, 9.876, 99.95, 1234.5, None)] == ["0.0123", "9.88", "100.", "1,234", "-"]


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere() -> None:
    """A plot for each figure, a dot for each run; no script, no address; text from outside is escaped."""
    text = page(report(run(0, "headrace", 20), run(1, "headrace", 21), run(0, "peer", 40)))

    root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    assert len(list(root.iter(f"{SVG}svg"))) == 3
    assert len(list(root.iter(f"{SVG}circle"))) == 6
    assert "<script" not in text
    assert "&lt;serve&gt;" in text
    assert not [value for node in root.iter() for key, value in node.items() if key in ("src", "href")]
    HTMLParser().feed(text)
