"""Two reports beside each other."""

from bench.compare import alike, comparison_table
from bench.record import Run
from tests.unit.bench.reports import report, run

FAST = 60.0  # GB/s, instead of the usual 30


def pair(number: int, ours_ms: float, theirs_ms: float, read_gb_s: float = 30.0) -> tuple[Run, Run]:
    """Two runs of a round."""
    return (
        run(number, "headrace", ours_ms, read_gb_s=read_gb_s),
        run(number, "peer", theirs_ms, read_gb_s=read_gb_s),
    )


def test_two_reports_are_compared_by_side_and_by_ratio() -> None:
    """Twice as fast is 2.00, and the ratio to the peer doubles too."""
    before = report(run(0, "headrace", 20), run(0, "peer", 40))
    after = report(run(0, "headrace", 10), run(0, "peer", 40))

    lines = comparison_table(before, after).splitlines()

    (ours,) = (line.split() for line in lines if "per later" in line and " headrace " in line)
    (ratio,) = (line.split() for line in lines if "per later" in line and " x peer " in line)
    assert ours[-3:] == ["20.0", "10.0", "2.00"]
    assert ratio[-3:] == ["2.00", "4.00", "2.00"]


def test_only_pairs_that_found_the_same_machine_in_both_reports_are_compared() -> None:
    """A peer that is slower on one kind of machine is not a change of the code."""
    usual, fast = pair(0, 10, 20), pair(1, 10, 40, FAST)

    assert alike([usual, fast], [usual]) == ([usual], [usual])
    assert alike([fast], [usual]) == ([], [])

    table = comparison_table(report(*usual, *fast, *pair(2, 10, 40, FAST)), report(*usual))
    assert [line.split()[-3:] for line in table.splitlines() if " x peer " in line] == [["2.00", "2.00", "1.00"]] * 2


def test_the_last_line_tells_how_many_ratios_agree() -> None:
    """Ten per cent up or down; both figures of a run are of the same time."""
    first = report(*pair(0, 10, 20))

    assert comparison_table(first, report(*pair(0, 10, 21.9))).splitlines()[-1].startswith("2 of 2 ratios agree")
    assert comparison_table(first, report(*pair(0, 10, 22.1))).splitlines()[-1].startswith("0 of 2 ratios agree")
    assert comparison_table(first, report(*pair(0, 10, 18.3))).splitlines()[-1].startswith("2 of 2 ratios agree")
    assert comparison_table(first, report(*pair(0, 10, 18.0))).splitlines()[-1].startswith("0 of 2 ratios agree")


def test_ratios_apart_are_told_from_ratios_not_known_well() -> None:
    """Two that scatter over the same range may be the same; two that do not have changed."""
    first = report(*pair(0, 10, 15), *pair(1, 10, 20), *pair(2, 10, 30))
    alike, changed = report(*pair(0, 10, 29)), report(*pair(0, 10, 31))

    assert comparison_table(first, alike).endswith("of the others 2 have intervals that meet\n")
    assert comparison_table(first, changed).endswith("of the others 0 have intervals that meet\n")
    assert comparison_table(changed, first).endswith("of the others 0 have intervals that meet\n")


def test_where_nothing_can_be_compared_nothing_is_said_to_agree() -> None:
    """Without a peer, and where no pair found the machine of another."""
    assert "agree" not in comparison_table(report(run(0, "headrace", 10), peers=()), report(*pair(0, 10, 20)))
    assert "agree" not in comparison_table(report(*pair(0, 10, 20)), report(*pair(0, 10, 20, FAST)))
