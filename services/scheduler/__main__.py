"""Scheduler process. Wiring only: every decision is in plan.py, every wait is in loop.py."""

import os

from libs.contracts.messages import ServiceStatus
from libs.runtime import failpoints
from libs.runtime.bus import Bus
from libs.runtime.config import describe, load_config
from libs.runtime.link import serve_link
from libs.runtime.logs import get_logger, setup_logs
from libs.runtime.metrics import ProcessFacts, serve_metrics
from libs.runtime.prefix_index import PrefixIndex
from libs.runtime.process import run, stop_signal
from libs.runtime.ring import open_ring
from libs.runtime.status import serve_status
from libs.runtime.telemetry import telemetry
from services.scheduler.background import unless
from services.scheduler.config import Config
from services.scheduler.loop import Clock, Loop
from services.scheduler.reign import Reign
from services.scheduler.rpc import Links
from services.scheduler.standby import Standby
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
        telemetry(SERVICE, config.instance, config.otlp_endpoint) as export,
        open_ring(config.trace_dir, SERVICE, config.instance) as ring,
        Bus.connect(config.nats_url, service=SERVICE, user=user, password=password) as bus,
        PrefixIndex.connect(
            config.redis_url, user=config.redis_user, password=config.redis_password.get_secret_value()
        ) as index,
        serve_link(f"{config.link_host}:{config.link_port}", config.link_token.get_secret_value(), links.serve) as port,
    ):
        standby = Standby(bus, await bus.cells(), config.model, config.cell)
        seat = Seat(config.instance, port, standby)
        await serve_status(bus, seat.status, config.health_file)
        begin = Reign.begin(config, port, bus, index, loop=loop, links=links, standby=standby, ring=ring)
        reign = await unless(stop, begin)
        if reign is not None:
            seat.state = reign.state
            facts = ProcessFacts(SERVICE, config.instance, ring, export, bus=bus.counts, index=index.counts)
            reign.metrics.registry.register(facts)
            await serve_metrics(bus, reign.metrics.registry)
            await reign.run(until=stop)
    get_logger(SERVICE).info("stopped")


class Seat:
    """What this process says of itself. It is ready when it stands by, or leads and every needed role has a worker."""

    def __init__(self, instance: str, port: int, standby: Standby) -> None:
        self._instance, self._port, self._standby = instance, port, standby
        self.state: State | None = None  # once it leads

    def status(self) -> ServiceStatus:
        if self.state is None:
            ready = self._standby.is_standing_by
            detail = "standing by" if ready else "looking for a leader"
            return ServiceStatus(SERVICE, self._instance, os.getpid(), self._port, ready, detail)
        missing = missing_roles(self.state)
        detail = f"no {' and no '.join(missing)} worker" if missing else ""
        cells = (cell_status(self.state),)
        return ServiceStatus(SERVICE, self._instance, os.getpid(), self._port, not missing, detail, cells)


if __name__ == "__main__":
    run(main)
