"""What gateways and tokenizers tell a scheduler, and its answers.

`term` is the highest that the sender knows of the cell, 0 for none: a scheduler of a lower one does not answer. `epoch`
is the attempt that the sender listens to, 0 where it knows none.
"""

from dataclasses import dataclass

from libs.contracts.messages.requests import PromptScores


@dataclass(frozen=True, slots=True)
class Cancel:
    """Idempotent. For an unknown request it is kept until the deadline. Answered by Done."""

    request_id: str
    deadline_unix_ms: int
    term: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class StopAt:
    """A stop string was completed by the token at `position`. Answered by Done."""

    request_id: str
    choice: int
    position: int
    term: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Resend:
    """Answered by Resent from the scheduler's log, whatever the epoch."""

    request_id: str
    choice: int
    position: int
    term: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class ScoresQuery:
    """How likely were the prompt's ids from index `first` on? Answered by Scored, with as many as are known and fit."""

    request_id: str
    first: int
    term: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Delivered:
    """The gateway's log is complete: generated tokens per choice. Answered by Done."""

    request_id: str
    totals: tuple[int, ...]
    term: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Exited:
    """host agent → scheduler: this worker's process no longer exists. Idempotent. Answered by Done."""

    incarnation: str
    term: int = 0


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """Supervisor, CLI → scheduler. Answered by CellStatus."""

    audit: bool = False  # check what must always be true of blocks, tables and orders, and say what is not


@dataclass(frozen=True, slots=True)
class Done:
    known: bool  # False: nothing is held under this request


@dataclass(frozen=True, slots=True)
class Resent:
    known: bool
    position: int
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    end: str  # "" while open or while positions after these are still unlogged
    top_ids: tuple[int, ...] = ()  # as in a frame
    top_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Scored:
    known: bool
    scores: tuple[PromptScores, ...] = ()  # none or one


@dataclass(frozen=True, slots=True)
class CellStatus:
    cell: str
    model: str
    term: int
    workers: tuple[str, ...]
    blocks_total: int
    blocks_free: int
    blocks_cached: int
    blocks_held: int
    blocks_freeing: int
    block_tokens: int
    waiting: int
    running: int
    moved_sequences: int = 0  # taken from workers that could not confirm it
    recomputed_tokens: int = 0  # KV that a lost worker had written and that was written again
    problems: tuple[str, ...] = ()  # of an audit that was asked for; empty when all is well


ControlMessage = Cancel | StopAt | Resend | Delivered | StatusQuery | Exited | ScoresQuery
