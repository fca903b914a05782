"""Everything between processes: messages wait in channels until a test has them arrive, get lost, doubled or late.

A channel keeps its order, as NATS does for one publisher and one subject, and gRPC for one link. Core NATS may lose;
what is repeated waits apart from its channel, as a request does that was sent again.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Channel = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Envelope:
    deliver: Callable[[], object]
    may_be_lost: bool


class Network:
    """`held` are names of links, subjects and processes: channels with such a name do not move by themselves."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self._channels: dict[Channel, deque[Envelope]] = {}
        self._detours = 0

    def send(self, channel: Channel, deliver: Callable[[], object], *, may_be_lost: bool) -> None:
        self._channels.setdefault(channel, deque()).append(Envelope(deliver, may_be_lost))

    def clear(self, channel: Channel) -> None:
        self._channels.pop(channel, None)

    @property
    def busy(self) -> list[Channel]:
        """Channels with something in them, in the order in which they got it."""
        return list(self._channels)

    @property
    def lossy(self) -> list[Channel]:
        """Those of them whose next message may be lost."""
        return [channel for channel, waiting in self._channels.items() if waiting[0].may_be_lost]

    def deliver(self, channel: Channel) -> None:
        self._pop(channel).deliver()

    def lose(self, channel: Channel) -> None:
        assert self._pop(channel).may_be_lost

    def repeat(self, channel: Channel) -> None:
        """It arrives now, and once more at any time later."""
        envelope = self._pop(channel)
        self._send_apart(channel, envelope)
        envelope.deliver()

    def delay(self, channel: Channel) -> None:
        """It takes another way, and may be overtaken by what follows."""
        self._send_apart(channel, self._pop(channel))

    def deliver_all(self) -> int:
        """What is under way now arrives, channel by channel."""
        return self._each(self.deliver)

    def rage(self, random: Random) -> int:
        """Of what is under way now, some arrives, some is lost, doubled, or late."""

        def move(channel: Channel) -> None:
            lossy = self._channels[channel][0].may_be_lost
            fates = (self.deliver, self.lose, self.repeat, self.delay) if lossy else (self.deliver,)
            random.choices(fates, (7, 1, 1, 1)[: len(fates)])[0](channel)

        return self._each(move)

    def _each(self, move: Callable[[Channel], None]) -> int:
        moved = 0
        for channel in self.busy:
            for _ in range(len(self._channels.get(channel, ()))):
                if channel in self._channels and self.held.isdisjoint(channel):
                    move(channel)
                    moved += 1
        return moved

    def _send_apart(self, channel: Channel, envelope: Envelope) -> None:
        self._detours += 1
        self._channels[(f"detour {self._detours}", *channel)] = deque([envelope])

    def _pop(self, channel: Channel) -> Envelope:
        waiting = self._channels[channel]
        envelope = waiting.popleft()
        if not waiting:
            del self._channels[channel]
        return envelope
