"""A whole deployment in one thread and virtual time. Its methods are what may happen; `checks` says what must hold."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from random import Random

from libs.contracts import flow
from libs.contracts.errors import Fenced
from libs.engine.worker.held import Held
from libs.runtime.link import LinkClient, LinkLost
from services.scheduler.state import DECODE, PREFILL
from tests.fakes.engine import FakePool, FakeTier
from tests.model.actors import Gateway, Host, Scheduler, Tokenizer
from tests.model.broker import Broker
from tests.model.demand import Call, Demand, open_calls
from tests.model.network import Network
from tests.model.process import IDLE, Clock, Process
from tests.model.wire import Wire, dialled
from tests.model.worker import HOST, MAX_MODEL_LEN, Worker

BLOCK_TOKENS = 16
HOST_BLOCKS = 6
STEP_S = 0.02
LATENCY_S = 0.001
SCHEDULERS_MAX = 3


class World:
    def __init__(self, *, blocks: int, role: str, prefillers: int, decoders: int) -> None:
        self.clock, self.network = Clock(), Network()
        self.broker = Broker(self.clock, self.network)
        self.pool = FakePool(blocks, BLOCK_TOKENS)
        self.tier = FakeTier(self.pool, HOST_BLOCKS)
        self.role, self.demand = role, Demand(min(MAX_MODEL_LEN, blocks * BLOCK_TOKENS))
        self.calls: dict[str, Call] = {}
        self.wires: list[tuple[Wire, Worker, Scheduler]] = []
        self.schedulers: list[Scheduler] = []
        self.workers: list[Worker] = []
        self.gateways: list[Gateway] = []
        self.tokenizers: list[Tokenizer] = []
        self.epochs: dict[tuple[str, int], int] = {}  # of choices, as their gateways last had them
        self.ended: list[tuple[str, str]] = []  # by schedulers that are gone
        self.died: dict[str, int] = {}  # how many of each kind
        self._births = 0
        self.host = Host(self.clock, self.broker, lambda: tuple(worker.incarnation for worker in self.workers))
        self.roles = [PREFILL] * prefillers + [DECODE] * decoders
        self.start_tokenizer()
        self.start_gateway()
        self.start_scheduler()
        for kind in self.roles:
            self.start_worker(kind)

    # Births

    def start_scheduler(self) -> None:
        self.schedulers.append(Scheduler(self._number(), self.clock, self.broker, self.role))

    def start_worker(self, role: str) -> None:
        worker = Worker(self._number(), role, self.clock, self.broker, self.pool, self.tier)
        worker.is_fenced = lambda held: self._is_fenced(worker, held)
        self.workers.append(worker)
        worker.attach(self.dial)

    def start_gateway(self) -> None:
        self.gateways.append(Gateway(self._number(), self.clock, self.broker))

    def start_tokenizer(self) -> None:
        self.tokenizers.append(Tokenizer(self._number(), self.clock, self.broker))

    # Deaths

    @property
    def processes(self) -> list[Process]:
        """Those that may be killed or frozen."""
        return [*self.schedulers, *self.workers, *self.gateways, *self.tokenizers]

    def kill(self, process: Process) -> None:
        for wire, worker, scheduler in self.wires:
            if process in (worker, scheduler):
                wire.cut()
        process.kill()
        self._bury(process)

    def close(self) -> None:
        for process in self._all:
            process.kill()

    # Faults and cures: a number chooses among what is possible; what is impossible does nothing

    def kill_one(self, number: int) -> None:
        self._kill(self.processes, number)

    def strike(self, number: int) -> None:
        """A worker dies in the middle of its work."""
        self._kill([worker for worker in self.workers if worker.held], number)

    def freeze(self, number: int) -> None:
        self._freeze(self.processes, number)

    def stun(self, number: int) -> None:
        """A worker freezes in the middle of its work."""
        self._freeze([worker for worker in self.workers if worker.held], number)

    def thaw(self, number: int) -> None:
        """A worker's thread may come first, and take a step before anything that arrived meanwhile is read."""
        if frozen := [process for process in self.processes if process.is_frozen]:
            process = frozen[number % len(frozen)]
            process.is_frozen = False
            if isinstance(process, Worker):
                process.step_blindly()

    def haunt(self, number: int) -> None:
        """A worker freezes until its work has moved, and thaws before anybody has ended it."""
        self.hold_host(number)
        self.stun(number)
        self.flow(2.0)
        self.thaw(number)
        self.flow(STEP_S)

    def cut(self, number: int) -> None:
        """A link breaks, with all that is on it."""
        if wires := [wire for wire, _, _ in self.wires if not wire.is_cut]:
            wires[number % len(wires)].cut()

    def hold(self, number: int) -> None:
        """A way is blocked: on a link, of a subject, or to and from a process."""
        if names := [name for channel in self.network.busy for name in channel]:
            self.network.held.add(names[number % len(names)])

    def hold_host(self, number: int) -> None:
        """Nobody is ended, and nobody listed: given up workers live on."""
        self.network.held.add(flow.host_subject(HOST))

    def release(self, number: int) -> None:
        self.network.held.clear()

    def stand_in(self, number: int) -> None:
        """Another scheduler takes the cell, though the one before may live."""
        if len(self.schedulers) < SCHEDULERS_MAX:
            self.start_scheduler()

    def _kill(self, processes: Sequence[Process], number: int) -> None:
        if processes:
            self.kill(processes[number % len(processes)])

    def _freeze(self, processes: Sequence[Process], number: int) -> None:
        if running := [process for process in processes if not process.is_frozen]:
            running[number % len(running)].is_frozen = True

    # Time

    @property
    def now_s(self) -> float:
        return self.clock.now_s

    def settle(self) -> None:
        """Everybody who is not frozen does what there is to do now."""
        while dirty := [process for process in self._all if process.is_runnable and process.due_s <= self.now_s]:
            for process in dirty:
                if process.is_runnable:
                    process.run()
                    assert not process.complaints, process.complaints
                if not process.is_alive:
                    if process.exited is not None and not isinstance(process.exited, Fenced):
                        raise process.exited
                    self._bury(process)
            self._execute()

    def pass_s(self, seconds: float) -> None:
        """Time passes; messages do not move by themselves."""
        end_s = self.now_s + seconds
        self.settle()
        while (due_s := self._due_s) <= end_s:
            self.clock.now_s = max(due_s, self.now_s)
            for queue in self.broker.queues.values():
                queue.serve()
            self.settle()
        self.clock.now_s = end_s
        self.settle()

    def flow(self, seconds: float, storm: Random | None = None) -> None:
        """Messages arrive, workers step, time passes; in a storm some messages do not arrive, or late, or twice."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.settle()
            has_delivered = (self.network.rage(storm) if storm else self.network.deliver_all()) > 0
            self.settle()
            has_stepped = [self.step(worker) for worker in list(self.workers) if worker.is_runnable]
            if any(has_stepped):
                self.pass_s(STEP_S)
            elif has_delivered:
                self.pass_s(LATENCY_S)
            else:
                self.pass_s(max(LATENCY_S, min(self._due_s, end_s) - self.now_s))

    # Requests and workers

    def submit(self, number: int) -> None:
        gateways = [gateway for gateway in self.gateways if gateway.is_alive]
        if gateways:
            call = self.demand.call(gateways[number % len(gateways)].name, number)
            self.calls[call.request_id] = call
            gateways[number % len(gateways)].submit(call)
            self.settle()

    def leave(self, number: int) -> None:
        """A client goes away."""
        waiting = [call for call in open_calls(self.calls)]
        if waiting:
            call = waiting[number % len(waiting)]
            self._gateway(call.gateway).abandon(call.request_id)
            self.settle()

    def step(self, worker: Worker) -> bool:
        """Half of what a step thread does between two looks at its inbox is done at once, half later."""
        if worker.under_way is not None:
            worker.finish()
            self.settle()
            return True
        return worker.begin()

    # Healing

    def heal(self) -> None:
        """The network is whole again, frozen processes thaw, and supervisors have restarted what died."""
        self.network.held.clear()
        for process in self.processes:
            process.is_frozen = False
        self.settle()
        self.restart()

    def restart(self, number: int = 0) -> None:
        if not self.schedulers:
            self.start_scheduler()
        if not self.gateways:
            self.start_gateway()
        if not self.tokenizers:
            self.start_tokenizer()
        there = [worker.role for worker in self.workers]
        for role in set(self.roles):
            for _ in range(self.roles.count(role) - there.count(role)):
                self.start_worker(role)
        self.settle()

    def dial(self, worker: Process, address: str) -> AbstractAsyncContextManager[LinkClient]:
        scheduler = next((found for found in self.schedulers if found.address == address), None)
        if scheduler is None or not worker.is_alive:
            raise LinkLost("nobody listens there")
        assert isinstance(worker, Worker)
        wire = Wire(self._number(), self.network, worker, scheduler)
        self.wires.append((wire, worker, scheduler))
        return dialled(wire, scheduler.links.serve)

    @property
    def _all(self) -> list[Process]:
        return [self.host, *self.processes]

    @property
    def _due_s(self) -> float:
        return min([IDLE, *(process.due_s for process in self._all), *(q.due_s for q in self.broker.queues.values())])

    def _is_fenced(self, worker: Worker, held: Held) -> bool:
        """Given up by the only leader there is, and taken back at its gateway."""
        states = [scheduler.state for scheduler in self.schedulers if scheduler.state is not None]
        book = states[0].workers.get(worker.incarnation) if len(self.schedulers) == len(states) == 1 else None
        is_lost = book is not None and book.is_lost
        return is_lost and not any(gateway.listens_to(held.resident) for gateway in self.gateways)

    def _number(self) -> int:
        self._births += 1
        return self._births

    def _gateway(self, name: str) -> Gateway:
        return next(gateway for gateway in self.gateways if gateway.name == name)

    def _execute(self) -> None:
        """The host agent ends whom it was told to end, and says so."""
        condemned, self.host.condemned = self.host.condemned, {}
        for incarnation, ends in condemned.items():
            for worker in [worker for worker in self.workers if worker.incarnation == incarnation]:
                self.kill(worker)
            for end in ends:
                self.host.call(end.set_result, None)

    def _bury(self, process: Process) -> None:
        """Its kernel closes its links; its subscriptions end; a gateway's clients see closed connections."""
        for wire, worker, scheduler in self.wires:
            if process in (worker, scheduler):
                wire.cut()
        self.died[type(process).__name__] = self.died.get(type(process).__name__, 0) + 1
        if isinstance(process, Scheduler):
            self.ended += process.ended
        for group in (self.schedulers, self.workers, self.gateways, self.tokenizers):
            if process in group:
                group.remove(process)  # type: ignore[arg-type]
        for call in open_calls(self.calls):
            if call.gateway == process.name:
                call.outcome = "gone"
