"""The table of survival: what it takes from histories, and that the words around it stay."""

from libs.contracts.messages import SamplingParams
from tests.chaos.history import History, Part, Quiet
from tests.chaos.survival import BEGIN, END, Row, row_of, rows_of, table, update


def run(name: str, *, failed: bool = False, held: int = 0) -> History:
    """One stream, struck at 12 s, that goes on at 13.5 s."""
    history = History(name, quiet=Quiet(blocks={"held": held}), tokens_recomputed=1, noticed_s=13.0)
    operation = history.invoke((1, 2), SamplingParams(), 10.0)
    operation.parts = [Part(11.0, (5,), ""), Part(13.5, (6,), "")]
    history.plant("kill", 12.0)
    operation.end("fail" if failed else "ok", 14.0)
    return history


def test_a_row_has_the_worst_of_its_runs() -> None:
    """Sums of what is counted, the maximum of what is timed."""
    row = row_of("kill", [run("survival/kill/1"), run("survival/kill/2", failed=True, held=2)])

    assert row == Row("kill", 2, 2, 1, 2.5, 1.0, 1.5, 2, 2)


def test_runs_of_one_fault_make_one_row() -> None:
    """By the fault in their names."""
    histories = [run("survival/kill/1"), run("survival/freeze/1"), run("survival/kill/2")]

    assert [(row.fault, row.runs) for row in rows_of(histories)] == [("freeze", 1), ("kill", 2)]


def test_only_the_table_is_written() -> None:
    """Whatever stands before and after it stays, and a second time changes nothing."""
    rows = rows_of([run("survival/kill/1")])
    page = update(f"words\n{BEGIN}\nold\n{END}\nmore\n", rows)

    assert page.startswith("words\n") and page.endswith(f"{END}\nmore\n")
    assert table(rows) in page and "old" not in page
    assert update(page, rows) == page
