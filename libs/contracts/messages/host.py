"""What a scheduler asks the agent of a host, heartbeats, and the records of cells and services."""

from dataclasses import dataclass, field

from libs.contracts.messages.control import CellStatus


@dataclass(frozen=True, slots=True)
class Kill:
    """scheduler → host agent. Answered by Gone once the process of this incarnation no longer exists.

    A host agent that has heard of a higher term of the cell does not obey, and does not answer.
    """

    incarnation: str
    term: int = 0
    cell: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    incarnation: str


@dataclass(frozen=True, slots=True)
class ListIncarnations:
    """scheduler → host agent. Answered by Incarnations: workers that may write to the pool, not those that load."""

    term: int = 0
    cell: str = ""


@dataclass(frozen=True, slots=True)
class Incarnations:
    incarnations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alive:
    """gateway → all over `alive.<gateway>`, every 250 ms while it holds a request."""

    gateway: str


@dataclass(frozen=True, slots=True)
class CellRecord:
    """Value of key `<model>.<cell>` in the KV bucket of cells: who leads the cell, and what it can hold."""

    model: str
    cell: str
    term: int
    scheduler: str  # instance
    address: str  # host:port of WorkerLink
    block_tokens: int
    model_digest: str
    max_prompt_tokens: int  # of the context and the pool the smaller; 0 until a worker said Hello


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """Every service's answer on `status`: who it is and whether it can serve."""

    service: str
    instance: str
    pid: int
    port: int  # 0 where it listens on none
    ready: bool
    detail: str
    cells: tuple[CellStatus, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ProfileQuery:
    """supervisor → all workers over `profile`: where does the time of your steps go, from now on for so long?"""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class Lap:
    """Time of a worker's step thread. The parts of a path, from the outermost in, are parted by semicolons."""

    path: str
    lap_ns: int


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """A worker's answer, when the time is over. The laps add up to `duration_ns`."""

    worker: str
    duration_ns: int
    steps: int
    batch_tokens: int
    event_loop_cpu_ns: int  # beside the steps: frames, results, orders
    process_cpu_ns: int  # of all its threads
    laps: tuple[Lap, ...]


HostMessage = Kill | ListIncarnations
HostReply = Gone | Incarnations
