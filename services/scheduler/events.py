"""What the core is told and what it wants done. Plain values: wire messages, and small ones for what has no wire."""

from dataclasses import dataclass

from libs.contracts.messages import (
    Alive,
    Began,
    CellStatus,
    ControlMessage,
    Done,
    EpochRaised,
    Failed,
    Finished,
    Gone,
    Hello,
    Leaving,
    LogQuery,
    RequestLog,
    Resent,
    Resync,
    SchedulerMessage,
    Scored,
    Sequence,
    StepResult,
)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A Sequence from the work queue. `traceparent` is this service's own span, the parent of what workers do."""

    sequence: Sequence
    traceparent: str
    is_older: bool = False  # it was stored before this term began: an earlier one may have had it computed


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
class Logged:
    """A gateway's answer to an Ask: what it holds of the request."""

    log: RequestLog


@dataclass(frozen=True, slots=True)
class AuditDue:
    """Nothing has run or waited for a while: time to look whether all is as it must be."""


@dataclass(frozen=True, slots=True)
class LinkClosed:
    incarnation: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A host agent's answer to AskHost: the workers that exist there."""

    host: str
    incarnations: tuple[str, ...]


Event = (
    Arrived
    | AuditDue
    | Asked
    | Answered
    | Logged
    | Listed
    | Alive
    | Hello
    | Began
    | StepResult
    | Resync
    | Leaving
    | LinkClosed
    | Gone
)


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
class Resign:
    """End this term: what its tables are about is no more, and a successor begins with what there is."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reply:
    ticket: int
    message: Done | Resent | Scored | CellStatus


@dataclass(frozen=True, slots=True)
class Tell:
    """To be repeated until the gateway answers (event Answered), or AckRequest ends it."""

    gateway: str
    message: Finished | Failed
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """To be repeated until the gateway answers (event Logged), or AckRequest ends it."""

    gateway: str
    request_id: str
    message: EpochRaised | LogQuery
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class AskHost:
    """Which workers exist there? To be repeated until the host answers (event Listed)."""

    host: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A request that workers die of, for an operator to look into. It says nothing of the prompt but its length."""

    request_id: str
    tenant: str
    deaths: int
    prompt_tokens: int
    generated_tokens: int


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
class Started:
    """A request's first token is there: how long it waited, for whatever reason, and how long its prompt took."""

    request_id: str
    queue_s: float
    prefill_s: float


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


@dataclass(frozen=True, slots=True)
class Audited:
    """An audit was made. `problems` has what is wrong, one line each: bugs of ours."""

    problems: tuple[str, ...]


Outward = Send | Refuse | Reply | Tell | Ask | AskHost | KillWorker
Command = Outward | Resign | DeadLetter | AckRequest | Ordered | Started | OpenCell | UpdateIndex | Audited
