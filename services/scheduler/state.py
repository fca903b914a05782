"""All that the scheduler knows, in one object with one owner. Policies read it; apply and decide change it."""

from collections import Counter
from dataclasses import dataclass, field

from libs.contracts.messages import Hello
from services.scheduler.choice import Choice
from services.scheduler.events import Command
from services.scheduler.memory import Memory
from services.scheduler.order import WaitQueue
from services.scheduler.worker_book import WorkerBook

AUTO = "auto"
HYBRID = "hybrid"
DISAGGREGATED = "disaggregated"
PREFILL = "prefill"
DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Policy:
    """What an operator decides once; see config.py."""

    cell: str
    model: str
    role: str = AUTO  # AUTO | HYBRID | DISAGGREGATED
    disaggregate_min_tokens: int = 0  # under AUTO: prompts with that much to compute; 0 is none
    max_chunk_tokens: int = 512
    chunk_target_s: float = 0.25
    max_running: int = 64


@dataclass(frozen=True, slots=True)
class CellFacts:
    """What all workers of the cell have in common, as the first one told it."""

    layout_fingerprint: bytes
    numerics_class: str
    model_digest: str
    block_tokens: int
    pool: str
    pool_blocks: int
    max_model_len: int

    @classmethod
    def of(cls, hello: Hello) -> "CellFacts":
        return cls(
            hello.layout_fingerprint,
            hello.numerics_class,
            hello.model_digest,
            hello.block_tokens,
            hello.pool,
            hello.pool_blocks,
            hello.max_model_len,
        )


@dataclass(slots=True)
class Gateway:
    """A gateway with requests here."""

    heard_s: float
    request_ids: set[str] = field(default_factory=set)


class State:
    """`requests` are those some gateway may still ask about; `choices` those that wait, run, or whose blocks are not
    back yet. A choice leaves each when its reason to be there ends.
    """

    def __init__(self, policy: Policy, term: int) -> None:
        self.policy = policy
        self.term = term
        self.facts: CellFacts | None = None  # None before the first Hello
        self.memory = Memory(0, 1)
        self.workers: dict[str, WorkerBook] = {}  # by incarnation
        self.gateways: dict[str, Gateway] = {}  # those with requests
        self.requests: dict[str, Choice] = {}
        self.choices: dict[int, Choice] = {}
        self.queue = WaitQueue()
        self.running: dict[int, Choice] = {}  # in some worker's order and not leaving it
        self.needy: dict[int, Choice] = {}  # running, and soon out of granted blocks
        self.cancelled: dict[str, float] = {}  # cancelled before they came: request id → deadline
        self.deadlines: list[tuple[float, str]] = []  # heap of (deadline, request id)
        self.commands: list[Command] = []  # in the making
        self.counts: Counter[str] = Counter()  # of what was dropped and done, by name
        self._last_handle = 0

    def next_handle(self) -> int:
        self._last_handle += 1
        return self._last_handle

    def take_commands(self) -> list[Command]:
        commands, self.commands = self.commands, []
        return commands
