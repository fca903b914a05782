"""Pool holder process: the memory of one pool, and the host agent of the workers that use it. Wiring only."""

import asyncio
from pathlib import Path

from deploy.host_agent import HostAgent
from deploy.pool.config import Config
from deploy.pool.lives import Lives
from deploy.pool.room import fitting_blocks
from libs.runtime.bus import Bus
from libs.runtime.config import describe, load_config
from libs.runtime.logs import get_logger, setup_logs
from libs.runtime.pool_file import hold_pool_at
from libs.runtime.process import run, stop_signal
from libs.runtime.status import READY, beat

SERVICE = "pool"

log = get_logger(SERVICE)


async def main() -> None:
    config = load_config(Config, prefix="HR_POOL_")
    setup_logs(config.log_level, config.log_format, service=SERVICE, instance=config.instance)
    log.info("started", **describe(config))
    layout, blocks = fitting_blocks(config)
    blocks = hold_pool_at(config.path, layout, blocks)
    log.info("holding", blocks=blocks, bytes=layout.pool_bytes(blocks))
    async with (
        stop_signal() as stop,
        Bus.connect(
            config.nats_url, service=SERVICE, user=config.nats_user, password=config.nats_password.get_secret_value()
        ) as bus,
    ):
        lives = Lives(config.path.parent, lambda incarnation: agent.ended(incarnation, config.cell))
        agent = HostAgent(bus, config.host, lives)
        await agent.serve()
        watching = asyncio.create_task(lives.watch())
        if config.health_file:
            beat(Path(config.health_file), lambda: READY)
        await stop.wait()
        watching.cancel()
        lives.close()
    log.info("stopped")


if __name__ == "__main__":
    run(main)
