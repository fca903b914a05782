"""A whole cell in one thread: the core, fake workers, and a gateway that says what the test has it say.

Every turn of the core is audited. Time is the test's own: it moves only by `pass_s`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from libs.contracts import messages
from libs.contracts.messages import (
    Alive,
    Cancel,
    CellStatus,
    ControlMessage,
    Delivered,
    Done,
    Failed,
    Finished,
    Gone,
    Resend,
    Resent,
    SamplingParams,
    Scored,
    StatusQuery,
    StopAt,
)
from services.scheduler.audit import audit
from services.scheduler.choice import Choice
from services.scheduler.events import (
    AckRequest,
    Answered,
    Arrived,
    Ask,
    Asked,
    AskHost,
    Audited,
    Command,
    DeadLetter,
    Event,
    KillWorker,
    LinkClosed,
    Listed,
    Logged,
    OpenCell,
    Ordered,
    Refuse,
    Reply,
    Resign,
    Send,
    Started,
    Tell,
    UpdateIndex,
)
from services.scheduler.plan import turn
from services.scheduler.state import DECODE, PREFILL, Policy, State
from tests.fakes.engine import FakePool, FakeTier
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.gateway import FakeGateway

START_S = 1_000.0
GATEWAY = "gateway-1"
BLOCK_TOKENS = 16


def prompt(tokens: int, first: int = 100) -> tuple[int, ...]:
    return tuple(first + index % 800 for index in range(tokens))


def params(max_tokens: int = 8, **changes: object) -> SamplingParams:
    """Greedy, and only max_tokens ends it unless the test says otherwise."""
    return SamplingParams(**{"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True, **changes})  # type: ignore[arg-type]


class Cell:
    """`sent`, `told`, `acked`, … are what the core has asked for so far, by kind."""

    def __init__(self, *, blocks: int = 64, host_blocks: int = 0, term: int = 1, **policy: object) -> None:
        self.policy = Policy(cell="c0", model="m", **policy)  # type: ignore[arg-type]
        self.state = State(self.policy, term)
        self.pool = FakePool(blocks, BLOCK_TOKENS)
        self.tier = FakeTier(self.pool, host_blocks) if host_blocks else None
        self.workers: dict[str, FakeWorker] = {}
        self.now_s = START_S
        self.sent, self.told, self.acked = list[Send](), list[Failed | Finished](), list[str]()
        self.ordered: dict[str, dict[str, float]] = {}
        self.killed, self.refused, self.resigned = list[KillWorker](), list[Refuse](), list[Resign]()
        self.opened, self.indexed = list[OpenCell](), list[UpdateIndex]()
        self.replies: list[Done | Resent | CellStatus] = []
        self.decide = turn  # or the same with something beside it
        self.gateway = FakeGateway(lambda request_id, choice, position: self.resend(request_id, position, choice).ids)
        self.gateway_answers = self.host_answers = True
        self.asks, self.host_asks = list[Ask](), list[AskHost]()  # not yet answered
        self.dead_letters, self.commands = list[DeadLetter](), list[list[Command]]()
        self.lose: Callable[[Send], bool] = lambda send: False
        self._carriers: dict[type, Callable[..., object]] = {
            Send: self._send,
            Tell: lambda tell: self.told.append(tell.message),
            AckRequest: lambda ack: self.acked.append(ack.request_id),
            Ordered: lambda told: self.ordered.setdefault(told.request_id, dict(told.waited_s)),
            Ask: self.asks.append,
            AskHost: self.host_asks.append,
            DeadLetter: self.dead_letters.append,
            KillWorker: self.killed.append,
            Refuse: self.refused.append,
            Resign: self.resigned.append,
            **dict.fromkeys((Started, Audited), lambda command: None),
            OpenCell: self.opened.append,
            UpdateIndex: self.indexed.append,
            Reply: lambda reply: self.replies.append(reply.message),
        }

    # Events

    def turn(self, *events: Event) -> None:
        commands = self.decide(self.state, events, self.now_s)
        problems = audit(self.state)
        assert not problems, problems
        self.commands.append(commands)
        for command in commands:
            self._carriers[type(command)](command)
        while self.asks and self.gateway_answers:
            self.answer_ask()
        while self.host_asks and self.host_answers:
            self.turn(Listed(self.host_asks.pop(0).host, tuple(self.workers)))

    def answer_ask(self, number: int = 0) -> None:
        """The gateway hears of a raised epoch, or a new term, and says what it holds."""
        ask = self.asks.pop(number)
        for log in self.gateway.answer(ask.message):
            self.turn(Logged(log))

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.turn()

    def pass_while_alive(self, seconds: float) -> None:
        """Time passes, and every gateway goes on saying that it lives."""
        for _ in range(int(seconds / 0.5)):
            for gateway in list(self.state.gateways):
                self.alive(gateway)
            self.pass_s(0.5)

    def add_worker(self, name: str, role: str, **changes: object) -> FakeWorker:
        worker = FakeWorker(name, role, self.pool, tier=self.tier, **changes)  # type: ignore[arg-type]
        self.workers[worker.incarnation] = worker
        self.attach(worker)
        return worker

    def attach(self, worker: FakeWorker) -> None:
        worker.on_frame = self.gateway.frame
        for message in worker.attach():
            self.turn(message)

    def close_link(self, worker: FakeWorker) -> None:
        worker.detach()
        self.turn(LinkClosed(worker.incarnation))

    def die(self, worker: FakeWorker) -> None:
        """Its link closes, its host says that its process has ended."""
        self.close_link(worker)
        del self.workers[worker.incarnation]
        self.turn(Gone(worker.incarnation))

    def replace(self, worker: FakeWorker) -> FakeWorker:
        """It dies, and another life of it begins."""
        self.die(worker)
        name, _, lives = worker.name.partition("+")
        return self.add_worker(f"{name}+{1 + int(lives or 0)}", worker.identity.role)

    def submit(self, request_id: str, ids: Sequence[int], sampling: SamplingParams | None = None, **more: Any) -> None:
        self.turn(self.arrival(request_id, ids, sampling, **more))

    def arrival(
        self,
        request_id: str,
        ids: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        gateway: str = GATEWAY,
        tenant: str = "t",
        deadline_s: float = 600.0,
        is_older: bool = False,
        **fields: Any,
    ) -> Arrived:
        """The event of `submit`, to be taken in with others. `fields` are the Sequence's."""
        self.gateway.open(request_id, fields.get("choices", 1))
        sequence = messages.Sequence(
            request_id=request_id,
            epoch=1,
            gateway=gateway,
            model="m",
            tenant=tenant,
            ids=tuple(ids),
            block_hashes=tuple(
                bytes([index]) + repr(tuple(ids[: (index + 1) * BLOCK_TOKENS])).encode()
                for index in range(len(ids) // BLOCK_TOKENS)
            ),
            params=sampling or params(),
            deadline_unix_ms=int((self.now_s + deadline_s) * 1000),
            **{"choices": 1, **fields},
        )
        return Arrived(sequence, f"trace-of-{request_id}", is_older)

    def ask(self, message: ControlMessage) -> Done | Resent | Scored | CellStatus:
        self.turn(Asked(len(self.replies), message))
        return self.replies[-1]

    def cancel(self, request_id: str, *, deadline_s: float = 600.0) -> bool:
        self.gateway.close(request_id)
        return self._done(Cancel(request_id, int((self.now_s + deadline_s) * 1000)))

    def deliver(self, request_id: str) -> bool:
        group = self.state.requests.get(request_id)
        totals = tuple(len(self.log(request_id, choice.index)) for choice in group.choices) if group else (0,)
        self.gateway.close(request_id)
        return self._done(Delivered(request_id, totals))

    def stop_at(self, request_id: str, position: int, choice: int = 0) -> bool:
        return self._done(StopAt(request_id, choice, position))

    def resend(self, request_id: str, position: int = 0, choice: int = 0) -> Resent:
        resent = self.ask(Resend(request_id, choice, position))
        assert isinstance(resent, Resent)
        return resent

    def answer(self, request_id: str, *, live: bool) -> None:
        self.turn(Answered(request_id, live))

    def alive(self, gateway: str = GATEWAY) -> None:
        self.turn(Alive(gateway))

    def step(self, worker: FakeWorker) -> bool:
        """One boundary; False when the worker is parked."""
        sent = worker.boundary()
        for message in sent:
            self.turn(message)
        return bool(sent)

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Step all workers in turn until nothing moves, or `until` holds."""
        moved = True
        while moved and not until():
            moved = False
            for worker in list(self.workers.values()):
                moved = self.step(worker) or moved

    @property
    def status(self) -> CellStatus:
        status = self.ask(StatusQuery())
        assert isinstance(status, CellStatus)
        return status

    @property
    def blocks(self) -> tuple[int, int, int, int]:
        """(free, cached, held, freeing)."""
        status = self.status
        return status.blocks_free, status.blocks_cached, status.blocks_held, status.blocks_freeing

    @property
    def is_clean(self) -> bool:
        """Nothing is held any more, for nobody."""
        free, cached, held, freeing = self.blocks
        return held == freeing == 0 and free + cached == self.pool.blocks and not self.state.choices

    @property
    def deltas(self) -> list[messages.Delta]:
        """All that went out, to whichever worker."""
        return [send.message for send in self.sent if isinstance(send.message, messages.Delta)]

    def choice(self, request_id: str, index: int = 0) -> Choice:
        return self.state.requests[request_id].choices[index]

    def log(self, request_id: str, choice: int = 0) -> tuple[int, ...]:
        return self.resend(request_id, choice=choice).ids

    def _done(self, message: ControlMessage) -> bool:
        done = self.ask(message)
        assert isinstance(done, Done)
        return done.known

    def _send(self, send: Send) -> None:
        self.sent.append(send)
        worker = self.workers.get(send.incarnation)
        if worker is not None and worker.link_up and not self.lose(send):
            worker.receive(send.message)


def hybrid(**changes: object) -> Cell:
    """A cell with one decode worker."""
    cell = Cell(**changes)  # type: ignore[arg-type]
    cell.add_worker("decode-1", DECODE)
    return cell


def disaggregated(**changes: object) -> Cell:
    """A cell whose prompts are computed by a worker of their own."""
    cell = Cell(**{"role": "disaggregated", **changes})  # type: ignore[arg-type]
    cell.add_worker("prefill-1", PREFILL)
    cell.add_worker("decode-1", DECODE)
    return cell
