"""All that the scheduler knows, in one object with one owner. Policies read it; apply and decide change it."""

from collections import Counter
from dataclasses import dataclass, field

from libs.contracts.messages import HeldSequence, Hello
from services.scheduler.choice import Choice, Noted
from services.scheduler.events import Command
from services.scheduler.eviction import Caching
from services.scheduler.group import Group
from services.scheduler.lately import Lately
from services.scheduler.memory import Memory
from services.scheduler.order import WaitQueue
from services.scheduler.swap_cost import COST, SwapRates
from services.scheduler.swap_queue import SwapQueue
from services.scheduler.swapped import Resting
from services.scheduler.worker_book import WorkerBook

AUTO = "auto"
HYBRID = "hybrid"
DISAGGREGATED = "disaggregated"
PREFILL = "prefill"
DECODE = "decode"

Told = tuple[str, int]  # a choice as workers name it: its request and its index


@dataclass(frozen=True, slots=True)
class Policy:
    """What an operator decides once; see config.py."""

    cell: str
    model: str
    role: str = AUTO  # AUTO | HYBRID | DISAGGREGATED
    disaggregate_min_tokens: int = 0  # under AUTO: prompts with that much to compute; 0 is none
    max_chunk_tokens: int = 512
    chunk_target_s: float = 0.25
    itl_target_s: float = 0.05
    max_running: int = 64
    preemption: str = COST  # COST | SWAP | RECOMPUTE
    caching: Caching = field(default_factory=Caching)


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
    host_pool: str
    host_blocks: int

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
            hello.host_pool,
            hello.host_blocks,
        )


@dataclass(slots=True)
class Gateway:
    """A gateway with requests here."""

    heard_s: float
    request_ids: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Roll:
    """A host's workers, of which a new term has to know that they obey it or are gone."""

    listed_s: float | None = None  # when the host answered; None before
    unheard: set[str] = field(default_factory=set)  # incarnations listed there that have not said Hello
    is_killing: bool = False  # those that are still unheard


class State:
    """`requests` are those some gateway may still ask about; `choices` those that wait, run, or whose blocks are not
    back yet. A choice leaves each when its reason to be there ends.
    """

    def __init__(self, policy: Policy, term: int) -> None:
        self.policy = policy
        self.term = term
        self.facts: CellFacts | None = None  # None before the first Hello
        self.memory = Memory(0, 1, policy.caching)
        self.workers: dict[str, WorkerBook] = {}  # by incarnation
        self.gateways: dict[str, Gateway] = {}  # those with requests
        self.requests: dict[str, Group] = {}
        self.choices: dict[int, Choice] = {}
        self.queue = WaitQueue()
        self.wanted: dict[str, Lately] = {}  # tenant → places that it could have used
        self.swapped = SwapQueue()  # wait as well, and resume first
        self.swap_rates = SwapRates()
        self.resting: Resting | None = None  # a prefix on its way to the host tier
        self.asking: dict[int, Choice] = {}  # their gateways are asked for their logs
        self.rolls: dict[str, Roll] = {}  # by host
        self.is_open = False  # what older terms' workers compute is settled
        self.settled: set[str] = set()  # requests that were done before that: nobody waits to know more of them
        self.is_succession = False  # a worker has obeyed an earlier term
        self.open_by_s: float | None = None  # since the first of them said Hello
        self.inherited: dict[Told, dict[str, HeldSequence]] = {}  # choice → incarnation → what it said of it
        self.running: dict[int, Choice] = {}  # in some worker's order and not leaving it
        self.needy: dict[int, Choice] = {}  # running, and soon out of granted blocks
        self.cancelled: dict[str, float] = {}  # cancelled before they came: request id → deadline
        self.deadlines: list[tuple[float, str]] = []  # heap of (deadline, request id)
        self.commands: list[Command] = []  # in the making
        self.journal: list[Noted] = []  # why choices are where they are now, since the last decision
        self.counts: Counter[str] = Counter()  # of what was dropped and done, by name
        self._last_handle = 0

    def next_handle(self) -> int:
        self._last_handle += 1
        return self._last_handle

    def obeying(self, incarnation: str, term: int) -> WorkerBook | None:
        """The worker whose word in this term counts: one that is not given up."""
        worker = self.workers.get(incarnation)
        return None if worker is None or worker.is_lost or term != self.term else worker

    def take_commands(self) -> list[Command]:
        commands, self.commands = self.commands, []
        return commands

    def take_journal(self) -> list[Noted]:
        journal, self.journal[:] = self.journal[:], []
        return journal
