"""Scheduler process. Wiring only: every decision is in plan.py, every wait is in loop.py."""

import os

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
from services.scheduler.config import Config
from services.scheduler.loop import Clock, Loop
from services.scheduler.reign import Reign
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
        reign = await Reign.begin(config, port, bus, index, loop=loop, links=links)
        await serve_status(bus, lambda: status(config.instance, port, reign.state))
        await serve_metrics(bus, reign.metrics.registry)
        await reign.run(until=stop)
    get_logger(SERVICE).info("stopped")


def status(instance: str, port: int, state: State) -> ServiceStatus:
    """Ready when every needed role has a worker."""
    missing = missing_roles(state)
    detail = f"no {' and no '.join(missing)} worker" if missing else ""
    return ServiceStatus(SERVICE, instance, os.getpid(), port, not missing, detail, (cell_status(state),))


if __name__ == "__main__":
    run(main)
