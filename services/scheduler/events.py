"""What the core is told and what it wants done. Plain values: wire messages, and small ones for what has no wire."""

from dataclasses import dataclass

from libs.contracts.messages import (
    Alive,
    Began,
    CellStatus,
    ControlMessage,
    Done,
    Failed,
    Finished,
    Gone,
    Hello,
    Resent,
    Resync,
    SchedulerMessage,
    Sequence,
    StepResult,
)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A Sequence from the work queue. `traceparent` is this service's own span, the parent of what workers do."""

    sequence: Sequence
    traceparent: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A control request; its Reply carries the same ticket."""

    ticket: int
    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Answered:
    """A gateway answered a Finished or Failed: it still holds the request, or not."""

    request_id: str
    live: bool


@dataclass(frozen=True, slots=True)
class LinkClosed:
    incarnation: str


Event = Arrived | Asked | Answered | Alive | Hello | Began | StepResult | Resync | LinkClosed | Gone


@dataclass(frozen=True, slots=True)
class Send:
    incarnation: str
    message: SchedulerMessage


@dataclass(frozen=True, slots=True)
class Refuse:
    """This worker must not serve here, ever or (`retry`) before it has looked up the cell again."""

    incarnation: str
    reason: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    ticket: int
    message: Done | Resent | CellStatus


@dataclass(frozen=True, slots=True)
class Tell:
    """To be repeated until the gateway answers (event Answered), or AckRequest ends it."""

    gateway: str
    message: Finished | Failed


@dataclass(frozen=True, slots=True)
class AckRequest:
    """Nothing of this request is owed to anybody any more: its message leaves the work queue."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """The first order that names this request is on its way. `waited_s`: reason → seconds it waited for it."""

    request_id: str
    waited_s: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class KillWorker:
    """To be repeated until the host answers (event Gone)."""

    host: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class OpenCell:
    """The first worker told what the cell can hold."""

    block_tokens: int
    model_digest: str
    max_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class UpdateIndex:
    """Hashes of prompt blocks that are cached now, and of those that are no more."""

    stored: tuple[bytes, ...]
    evicted: tuple[bytes, ...]


Command = Send | Refuse | Reply | Tell | AckRequest | Ordered | KillWorker | OpenCell | UpdateIndex
