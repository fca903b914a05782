"""`headrace replay`: event logs of the scheduler decided again, as text."""

from pathlib import Path

from libs.contracts.errors import ConfigError, HeadraceError
from services.scheduler.replay import Difference, Replayed, replay


class Differs(HeadraceError):
    """The present code decides something else than the logged run did."""

    code = "replay_differs"


def replay_files(paths: list[Path]) -> str:
    """A line for each log. Raises Differs at the first difference, and ConfigError for what is no event log."""
    lines = []
    for path in paths:
        done = _replayed(path)
        if done.difference is not None:
            raise Differs(f"{path}: {_told(done.difference)}")
        lines.append(
            f"{path}: term {done.term}, {done.turns:,} turns over {done.seconds:,.1f} s, {done.steps:,} steps, "
            f"{done.decisions:,} decisions: all the same\n"
        )
    return "".join(lines)


def _replayed(path: Path) -> Replayed:
    try:
        with path.open("rb") as file:
            return replay(file)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from error


def _told(difference: Difference) -> str:
    """What both decisions have in common is left out."""
    logged = [line for line in difference.logged if line not in difference.again]
    again = [line for line in difference.again if line not in difference.logged]
    if not logged and not again:
        logged = again = ["the same in words: order, token ids or parameters differ"]
    parts = [f"turn {difference.turn} at {difference.now_s:.6f} s is the first that differs"]
    parts += [f"  then: {line}" for line in logged or ["nothing"]]
    parts += [f"  now:  {line}" for line in again or ["nothing"]]
    return "\n".join(parts)
