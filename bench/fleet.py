"""The servers of all sides: started, warmed up, and most of them started anew for every round."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.load import run_scenario
from bench.record import Side
from bench.scenarios import WARM_UP
from bench.servers import Launch, Server, running

Tell = Callable[[str], None]
WARM_SEED = -1  # no round has it


class Fleet:
    """Where a server's memory comes to lie makes it up to a sixth faster or slower until it ends, so one start tells
    less than several do. Only what takes a minute to start, or was started by somebody else, stays for all rounds.
    """

    def __init__(self, launches: Sequence[Launch], vocab_size: int, log_dir: Path, tell: Tell) -> None:
        self._launches, self._vocab_size, self._log_dir, self._tell = launches, vocab_size, log_dir, tell
        self._servers: dict[str, Server] = {}
        self._sides: dict[str, Side] = {}
        self._all_rounds, self._one_round = AsyncExitStack(), AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._one_round.aclose()
        finally:
            await self._all_rounds.aclose()

    async def fresh(self) -> list[Server]:
        """All for one round, ours first; those of the round before are stopped. Raises BenchError."""
        await self._one_round.aclose()
        for launch in self._launches:
            if not launch.stays or launch.name not in self._servers:
                self._servers[launch.name] = await self._start(launch)
        return list(self._servers.values())

    async def _start(self, launch: Launch) -> Server:
        scope = self._all_rounds if launch.stays else self._one_round
        log_path = self._log_dir / f"{launch.name}.log"
        server = await scope.enter_async_context(running(launch, self._vocab_size, log_path))
        self._tell(f"{launch.name} answers after {server.started_in_s:.1f} s")
        await run_scenario(server.target, WARM_UP, self._vocab_size, WARM_SEED)
        scope.callback(self._note, launch, server)
        return server

    def _note(self, launch: Launch, server: Server) -> None:
        """Just before it stops."""
        words = [*(f"{name}={value}" for name, value in launch.environ.items()), *launch.command] or ["(runs already)"]
        self._sides[launch.name] = Side(launch.name, words, server.started_in_s, round(server.memory_bytes() / 1e6))

    def sides(self) -> list[Side]:
        """What was known of each when it was stopped, ours first."""
        return [self._sides[launch.name] for launch in self._launches if launch.name in self._sides]
