"""The core is a pure function of its event log."""

from io import BytesIO

from libs.contracts.messages import Delta
from services.scheduler.event_log import EventLog, read_log, replay
from services.scheduler.state import DECODE, PREFILL
from tests.unit.scheduler.cell import Cell, params, prompt


def a_run() -> Cell:
    """Prompts that share, one that is cancelled, a pool that runs short, a worker that dies."""
    cell = Cell(blocks=14, role="disaggregated", max_chunk_tokens=32)
    cell.add_worker("prefill-1", PREFILL)
    lost = cell.add_worker("decode-1", DECODE)
    for index in range(6):
        cell.submit(f"r{index}", prompt(20 + 13 * index, 100 + 50 * (index % 3)), params(30))
    cell.run(lambda: cell.choice("r1").generated == 4)
    cell.cancel("r0")
    cell.die(lost)
    cell.add_worker("decode-2", DECODE)
    cell.run()
    return cell


def test_a_logged_run_is_decided_again_command_by_command() -> None:
    """From the file alone, bytes and all."""
    cell = a_run()
    file = BytesIO()
    log = EventLog(cell.policy, 1, file)
    for turn in cell.turns:
        log.append(turn.now_s, turn.events)

    state, turns = read_log(file.getvalue().splitlines())

    assert list(replay(state, turns)) == cell.commands
    assert any(
        isinstance(getattr(command, "message", None), Delta) for commands in cell.commands for command in commands
    )


def test_memory_keeps_the_newest_turns_only() -> None:
    """A log without a file must not grow for ever."""
    log = EventLog(Cell().policy, 1)
    for second in range(5000):
        log.append(float(second), ())
    assert len(log.last) < 5000 and log.last[-1].now_s == 4999.0
