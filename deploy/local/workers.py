"""The workers of a fleet, as the host agent asks for them."""

import signal
from collections.abc import Mapping

from deploy.local.environment import WORKERS
from deploy.local.fleet import Life
from libs.runtime.pool_file import is_used


class FleetWorkers:
    """The workers among the fleet's `lives` by program.

    The supervisor alone starts them, and forgets them at their end: a life that is not among them is gone.
    """

    def __init__(self, lives: Mapping[str, Life], pool_fd: int) -> None:
        self._lives, self._pool_fd = lives, pool_fd

    def writing(self) -> tuple[str, ...]:
        return tuple(name for name in self._by_incarnation() if is_used(self._pool_fd, name))

    async def end(self, incarnation: str) -> None:
        if life := self._by_incarnation().get(incarnation):
            life.child.signal(signal.SIGKILL)
            await life.child.wait()

    def _by_incarnation(self) -> dict[str, Life]:
        return {life.incarnation: life for name, life in self._lives.items() if name.startswith(WORKERS)}
