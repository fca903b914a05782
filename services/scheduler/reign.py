"""One term of one cell: everything that acts for it, wired together. What connects it to others comes from outside."""

import asyncio
from datetime import UTC, datetime
from typing import NoReturn

from libs.contracts.errors import Fenced
from libs.runtime.bus import Bus
from libs.runtime.prefix_index import PrefixIndex
from libs.runtime.process import leave_at_once
from libs.runtime.ring import OFF, Ring
from services.scheduler.auditor import Auditor
from services.scheduler.background import Background, run_beside
from services.scheduler.broker_watch import BrokerWatch
from services.scheduler.config import Config
from services.scheduler.dead_letters import DeadLetters
from services.scheduler.decision_records import DecisionRecords
from services.scheduler.event_log import open_log
from services.scheduler.events import (
    AckRequest,
    Ask,
    AskHost,
    Audited,
    DeadLetter,
    KillWorker,
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
from services.scheduler.index import IndexUpdates
from services.scheduler.intake import Intake
from services.scheduler.loop import Carriers, Loop
from services.scheduler.metrics import Metrics
from services.scheduler.outbox import Outbox
from services.scheduler.register import Register
from services.scheduler.rpc import Links
from services.scheduler.standby import Standby
from services.scheduler.state import State
from services.scheduler.wait_spans import WaitSpans


class Reign:
    """Made by `begin`."""

    def __init__(self, config: Config, register: Register, state: State, loop: Loop, standby: Standby | None) -> None:
        self.state, self.metrics = state, Metrics(state)
        self._config, self._register, self._loop, self._standby = config, register, loop, standby
        self._background = Background()
        self._auditor = Auditor(state, loop.post)

    @classmethod
    async def begin(
        cls,
        config: Config,
        port: int,
        bus: Bus,
        index: PrefixIndex,
        *,
        loop: Loop,
        links: Links,
        standby: Standby | None = None,
        ring: Ring = OFF,
    ) -> "Reign":
        """Claim the next term, with `standby` once nobody leads, and answer control requests from then on.

        Raises Unavailable.
        """
        claim = Register.claim(bus, config, port) if standby is None else Register.lead(bus, config, port, standby)
        register = await claim
        reign = cls(config, register, State(config.policy, register.term), loop, standby)
        loop.on_turn.append(reign._auditor.on_turn)
        loop.on_turn.append(WaitSpans(loop.clock.monotonic_ns).on_turn)
        if ring.is_on:
            loop.on_turn.append(DecisionRecords(ring, reign.state, loop.clock.monotonic_ns).on_turn)
        await reign._open(bus, index, links)
        return reign

    async def run(self, *, until: asyncio.Event) -> None:
        """Decide and act until the event is set. Raises Fenced when a newer term has the cell."""
        config, state = self._config, self.state
        with open_log(config.policy, state.term, config.event_log_path) as events:
            await run_beside(
                self._loop.run(state, events, self.carriers, until=until),
                self._intake.pull(config.max_waiting),
                self._register.publish(),
                self._updates.run(),
                self._watch.run(),
                *([_give_way(self._standby, state.term)] if self._standby is not None else []),
            )
        self._auditor.close()
        await self._background.settle(config.drain_s)

    async def _open(self, bus: Bus, index: PrefixIndex, links: Links) -> None:
        config, state, loop = self._config, self.state, self._loop
        links.on_step = self.metrics.step
        self._watch = BrokerWatch(bus, state, loop.post)
        begun_at = datetime.fromtimestamp(loop.clock.now_s(), UTC)
        doubt = self._standby.look if self._standby is not None else lambda: None
        self._intake = Intake(bus, state, self._watch.post, self._background, begun_at, doubt)
        is_first = self._register.is_first
        self.outbox = Outbox(
            bus, loop.post, self._background, cell=config.cell, term=state.term, needs_agents=not is_first
        )
        self._dead_letters = DeadLetters(bus, config, self._background)
        self._updates = IndexUpdates(index, config.cell, state.term)
        self.carriers = self._carriers(links)
        await self._dead_letters.declare()
        await self._intake.listen()

    def _carriers(self, links: Links) -> Carriers:
        """Who carries out which command."""
        return {
            Send: links.carry,
            Refuse: links.carry,
            Resign: resign,
            Reply: self._intake.reply,
            Ordered: self._intake.ordered,
            Started: self.metrics.started,
            AckRequest: self._acknowledge,
            Tell: self.outbox.tell,
            Ask: self.outbox.ask,
            AskHost: self.outbox.ask_host,
            KillWorker: self.outbox.kill,
            DeadLetter: self._dead_letters.bury,
            OpenCell: self._register.open,
            UpdateIndex: self._updates.update,
            Audited: self._auditor.told,
        }

    def _acknowledge(self, command: AckRequest) -> None:
        self.outbox.forget(command)
        self._intake.acknowledge(command)


def resign(command: Resign) -> NoReturn:
    """End the reign and with it the process; who starts it again, or a standby, begins the next term."""
    raise Fenced(command.reason)


async def _give_way(standby: Standby, term: int) -> None:
    """A leader that was frozen ends at once when it thaws: tidying up may wait for links and brokers it has lost."""
    try:
        await standby.follow(term)
    except Fenced as error:
        leave_at_once(error)
