"""The workers of a cell in a fleet, as its host agent asks for them."""

import signal
from collections.abc import Container, Mapping

from deploy.local.fleet import Life
from libs.runtime.pool_file import is_used


class FleetWorkers:
    """Those of these `names` among the fleet's `lives` by program: a cell's own, over the pool `pool_fd`.

    The supervisor alone starts them, and forgets them at their end: a life that is not among them is gone.
    """

    def __init__(self, lives: Mapping[str, Life], names: Container[str], pool_fd: int) -> None:
        self._lives, self._names, self._pool_fd = lives, names, pool_fd

    def writing(self) -> tuple[str, ...]:
        return tuple(name for name in self._by_incarnation() if is_used(self._pool_fd, name))

    async def end(self, incarnation: str) -> None:
        if life := self._by_incarnation().get(incarnation):
            life.child.signal(signal.SIGKILL)
            await life.child.wait()

    def _by_incarnation(self) -> dict[str, Life]:
        return {life.incarnation: life for name, life in self._lives.items() if name in self._names}
