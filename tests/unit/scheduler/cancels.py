"""A cancel at any step of a request, and what has to be true afterwards."""

from libs.contracts.messages import SamplingParams
from tests.unit.scheduler.cell import hybrid, prompt


def play_cancel(sampling: SamplingParams, *, choices: int, steps: int) -> None:
    """Every block comes back, and the request is acknowledged once."""
    cell = hybrid(max_chunk_tokens=16)
    cell.submit("r", prompt(40), sampling, choices=choices)
    for _ in range(steps):
        for worker in cell.workers.values():
            cell.step(worker)
    assert cell.cancel("r")
    cell.run()
    assert cell.is_clean and cell.acked == ["r"]
