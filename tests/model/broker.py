"""A model of NATS: core subjects, work queues with consumers and acknowledgements, the bucket of cells."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from libs.contracts.flow import consumer_term
from libs.contracts.messages import CellRecord
from tests.model.network import Network
from tests.model.process import IDLE, Clock, Process


@dataclass(slots=True, eq=False)
class Stored:
    number: int
    subject: str
    payload: bytes
    traceparent: str
    stored_at: datetime
    deliveries: int = 0


@dataclass(slots=True, eq=False)
class Pull:
    """One message is wanted; `arrive` gets it, or None when the consumer is gone."""

    process: Process
    arrive: Callable[[Stored | None], object]


@dataclass(slots=True, eq=False)
class Consumer:
    name: str
    filter_subject: str
    ack_wait_s: float
    pending: dict[int, float] = field(default_factory=dict)  # message number → when it is delivered again
    pulls: deque[Pull] = field(default_factory=deque)


class WorkQueue:
    """One JetStream stream: each subject has one consumer; what that has acknowledged is gone."""

    def __init__(self, name: str, clock: Clock, network: Network) -> None:
        self.name, self._clock, self._network = name, clock, network
        self.messages: dict[int, Stored] = {}
        self.consumers: dict[str, Consumer] = {}  # by filter subject
        self._seen: set[str] = set()
        self._last = 0

    def store(self, subject: str, payload: bytes, message_id: str, traceparent: str) -> None:
        if message_id not in self._seen:
            self._seen.add(message_id)
            self._last += 1
            at = datetime.fromtimestamp(self._clock.now_s, UTC)
            self.messages[self._last] = Stored(self._last, subject, payload, traceparent, at)
            self.serve()

    def claim(self, name: str, filter_subject: str, ack_wait_s: float) -> bool:
        """Become the subject's consumer; another one, and what it has not acknowledged, is set free.

        False when that is one of a higher term.
        """
        held = self.consumers.get(filter_subject)
        if held is not None and held.name == name:
            return True
        if held is not None and consumer_term(held.name) > consumer_term(name):
            return False
        self.consumers[filter_subject] = Consumer(name, filter_subject, ack_wait_s)
        for pull in held.pulls if held else ():
            self._reach(pull, None)
        return True

    def is_owned_by(self, name: str, filter_subject: str) -> bool:
        return self.consumers[filter_subject].name == name

    def pull(self, name: str, filter_subject: str, pull: Pull) -> None:
        if self.is_owned_by(name, filter_subject):
            self.consumers[filter_subject].pulls.append(pull)
            self.serve()
        else:
            self._reach(pull, None)

    def ack(self, name: str, message: Stored) -> None:
        """A consumer that is gone is not heard."""
        consumer = self.consumers[message.subject]
        if consumer.name == name:
            consumer.pending.pop(message.number, None)
            self.messages.pop(message.number, None)

    def postpone(self, name: str, message: Stored, delay_s: float) -> None:
        consumer = self.consumers[message.subject]
        if consumer.name == name and message.number in consumer.pending:
            consumer.pending[message.number] = self._clock.now_s + delay_s

    @property
    def due_s(self) -> float:
        """When a message is delivered again; nothing happens before somebody pulls."""
        waits = (due for consumer in self.consumers.values() if consumer.pulls for due in consumer.pending.values())
        return min(waits, default=IDLE)

    def serve(self) -> None:
        """Give what is due to who waits for it."""
        for consumer in self.consumers.values():
            consumer.pulls = deque(pull for pull in consumer.pulls if pull.process.is_alive)
            for message in list(self.messages.values()):
                is_due = consumer.pending.get(message.number, self._clock.now_s) <= self._clock.now_s
                if consumer.pulls and is_due and message.subject == consumer.filter_subject:
                    consumer.pending[message.number] = self._clock.now_s + consumer.ack_wait_s
                    message.deliveries += 1
                    self._reach(consumer.pulls.popleft(), message)

    def _reach(self, pull: Pull, message: Stored | None) -> None:
        channel = (self.name, pull.process.name)
        self._network.send(channel, lambda: pull.process.call(pull.arrive, message), may_be_lost=False)


class Broker:
    """Shared by all clients of a world."""

    def __init__(self, clock: Clock, network: Network) -> None:
        self.clock, self.network = clock, network
        self.queues = {name: WorkQueue(name, clock, network) for name in ("requests", "sequences")}
        self.record: CellRecord | None = None
        self.watchers: list[tuple[Process, Callable[[CellRecord], object]]] = []
        self.handlers: dict[tuple[str, str], tuple[Process, Callable[..., object]]] = {}  # subject, process → who

    def claim(self, record: CellRecord) -> CellRecord:
        held = self.record
        claimed = replace(record, term=1)
        if held is not None:
            claimed = replace(held, term=held.term + 1, scheduler=record.scheduler, address=record.address)
        self.put(claimed)
        return claimed

    def put(self, record: CellRecord) -> None:
        self.record = record
        for process, changed in self.watchers:
            self._tell(process, changed, record)

    def listeners(self, subject: str) -> list[tuple[Process, Callable[..., object]]]:
        first, _, _ = subject.partition(".")
        return [
            listener
            for (wanted, _), listener in self.handlers.items()
            if wanted in (subject, f"{first}.*") and listener[0].is_alive
        ]

    def _tell(self, process: Process, changed: Callable[[CellRecord], object], record: CellRecord) -> None:
        self.network.send(("cells", process.name), lambda: process.call(changed, record), may_be_lost=False)
