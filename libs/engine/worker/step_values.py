"""What a step boundary takes, computes and reports: plain values between Residents and whoever carries them out."""

from dataclasses import dataclass

from libs.contracts.messages import Began, BlockCopy, Resident, StepResult
from libs.engine.rows import StepRow
from libs.engine.worker.held import Held


@dataclass(frozen=True, slots=True)
class Move:
    """Blocks that travel to the host tier, or back, for one sequence: (block, host block) each."""

    sequence: int
    inward: bool
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """A version just taken. `outward`, `resets`, Began, `copies`, `inward`, its step: in this order."""

    at_ns: int
    began: Began
    resets: tuple[int, ...]  # fresh blocks: fill count 0
    copies: tuple[BlockCopy, ...]
    added: tuple[Resident, ...]
    removed: tuple[Resident, ...]
    is_last: bool  # nobody is left
    outward: tuple[Move, ...] = ()
    inward: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Rows of one step; `held` owns them, entry by entry. Without rows it is an empty step that only reports."""

    rows: tuple[StepRow, ...]
    held: tuple[Held, ...]

    @property
    def batch_tokens(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did: the StepResult, and the resident behind each of its rows."""

    result: StepResult
    residents: tuple[Resident, ...]
