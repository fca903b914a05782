"""What an older term's worker had to wait for, it gets from the new one."""

from tests.unit.scheduler.succession import EXPECTED, PROMPT, SAMPLING, succeeded


def test_one_that_used_up_its_grants_goes_on() -> None:
    """It has nothing more to report: what it needs is seen when the term opens."""
    cell, worker = succeeded(generated=1)
    for _ in EXPECTED:
        worker.boundary()
    assert len(cell.gateway.held["r"].ids) < len(EXPECTED)

    cell.attach(worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.run()

    assert cell.state.counts["adopted_sequences"] == 1
    assert cell.log("r") == tuple(cell.gateway.held["r"].ids) == EXPECTED
