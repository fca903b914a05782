"""Scheduler process. Wiring only: every decision is in plan.py, every wait is in loop.py."""

import os
from datetime import UTC, datetime

from libs.contracts.messages import ServiceStatus
from libs.runtime import failpoints
from libs.runtime.bus import Bus
from libs.runtime.config import describe, load_config
from libs.runtime.link import serve_link
from libs.runtime.logs import get_logger, setup_logs
from libs.runtime.metrics import serve_metrics
from libs.runtime.prefix_index import PrefixIndex
from libs.runtime.process import run, stop_signal
from libs.runtime.status import serve_status
from libs.runtime.telemetry import telemetry
from services.scheduler.background import Background, run_beside
from services.scheduler.broker_watch import BrokerWatch
from services.scheduler.config import Config
from services.scheduler.event_log import open_log
from services.scheduler.events import (
    AckRequest,
    Ask,
    AskHost,
    DeadLetter,
    KillWorker,
    OpenCell,
    Ordered,
    Refuse,
    Reply,
    Send,
    Started,
    Tell,
    UpdateIndex,
)
from services.scheduler.index import IndexUpdates
from services.scheduler.intake import Intake
from services.scheduler.loop import Carriers, Clock, Loop
from services.scheduler.metrics import Metrics
from services.scheduler.outbox import Outbox
from services.scheduler.register import Register
from services.scheduler.rpc import Links
from services.scheduler.state import State
from services.scheduler.status import cell_status, missing_roles

SERVICE = "scheduler"


async def main() -> None:
    config = load_config(Config, prefix="HR_SCHEDULER_")
    setup_logs(config.log_level, config.log_format, service=SERVICE, instance=config.instance)
    failpoints.arm(config.failpoints, config.failpoints_file, config.instance)
    get_logger(SERVICE).info("started", **describe(config))
    user, password = config.nats_user, config.nats_password.get_secret_value()
    loop = Loop(Clock())
    links = Links(loop.post)
    async with (  # opened top to bottom, closed bottom to top
        stop_signal() as stop,
        telemetry(SERVICE, config.instance, config.otlp_endpoint),
        Bus.connect(config.nats_url, service=SERVICE, user=user, password=password) as bus,
        PrefixIndex.connect(
            config.redis_url, user=config.redis_user, password=config.redis_password.get_secret_value()
        ) as index,
        serve_link(f"{config.link_host}:{config.link_port}", config.link_token.get_secret_value(), links.serve) as port,
    ):
        register, term = await Register.claim(bus, config, port)
        state, background = State(config.policy, term), Background()
        metrics = Metrics(state)
        links.on_step = metrics.step
        watch = BrokerWatch(bus, state, loop.post)
        intake = Intake(bus, state, watch.post, background, datetime.now(UTC))
        outbox = Outbox(bus, loop.post, background, cell=config.cell, term=term)
        updates = IndexUpdates(index, config.cell, term)
        carriers = {**carriers_of(links, intake, outbox, register, updates), Started: metrics.started}
        await intake.listen()
        await serve_status(bus, lambda: status(config.instance, port, state))
        await serve_metrics(bus, metrics.registry)
        with open_log(config.policy, term, config.event_log_path) as events:
            await run_beside(
                loop.run(state, events, carriers, until=stop),
                intake.pull(config.max_waiting),
                register.publish(),
                updates.run(),
                watch.run(),
            )
        await background.settle(config.drain_s)
    get_logger(SERVICE).info("stopped")


def carriers_of(links: Links, intake: Intake, outbox: Outbox, register: Register, updates: IndexUpdates) -> Carriers:
    """Who carries out which command."""

    def acknowledge(command: AckRequest) -> None:
        outbox.forget(command)
        intake.acknowledge(command)

    return {
        Send: links.carry,
        Refuse: links.carry,
        Reply: intake.reply,
        Ordered: intake.ordered,
        AckRequest: acknowledge,
        Tell: outbox.tell,
        Ask: outbox.ask,
        AskHost: outbox.ask_host,
        KillWorker: outbox.kill,
        DeadLetter: outbox.dead_letter,
        OpenCell: register.open,
        UpdateIndex: updates.update,
    }


def status(instance: str, port: int, state: State) -> ServiceStatus:
    """Ready when every needed role has a worker."""
    missing = missing_roles(state)
    detail = f"no {' and no '.join(missing)} worker" if missing else ""
    return ServiceStatus(SERVICE, instance, os.getpid(), port, not missing, detail, (cell_status(state),))


if __name__ == "__main__":
    run(main)
