"""Keeps programs running: starts each, starts it again when it ends, and stops all of them in order."""

import asyncio
import secrets
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.child import Child, log_tail, spawn
from libs.contracts.errors import ConfigError, HeadraceError
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger

CONFIG_EXIT_CODE: Final = 2  # a service's word for "this will not get better by trying again"
START_ATTEMPTS: Final = 3
FIRST_BACKOFF_S: Final = 0.1
LONGEST_BACKOFF_S: Final = 5.0
SOUND_LIFE_S: Final = 30.0  # a life this long forgives earlier failures
UP_TIMEOUT_S: Final = 10.0
SHOWN_LOG_LINES: Final = 5

log = get_logger("fleet")


class StartFailed(HeadraceError):
    """A program ended again and again before the stack was up."""

    code = "start_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run. `environ` is asked at each start with that life's name, 32 hex digits."""

    name: str
    argv: tuple[str, ...]
    environ: Callable[[str], Mapping[str, str]]
    log_path: Path
    stop_stage: int
    pass_fds: tuple[int, ...] = ()
    once_up: Callable[[], Awaitable[None]] | None = None  # returns when others may use it; done at every start


@dataclass(frozen=True, slots=True)
class Life:
    """One run of one program."""

    program: Program
    incarnation: str
    child: Child


class Fleet:
    """All `programs` of a stack by name; `lives` holds those that run now."""

    def __init__(
        self,
        on_change: Callable[[], None],
        longest_backoff_s: float = LONGEST_BACKOFF_S,
        on_end: Callable[[Life], None] = lambda life: None,
    ) -> None:
        self.programs: dict[str, Program] = {}
        self.lives: dict[str, Life] = {}
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_change, self._on_end, self._longest_backoff_s = on_change, on_end, longest_backoff_s
        self._settled = False
        self._keepers: set[asyncio.Task[None]] = set()
        self._up: dict[str, asyncio.Event] = {}

    def add(self, program: Program) -> asyncio.Event:
        """Start a program and keep it running; the event is set once others may use it."""
        self.programs[program.name] = program
        up = self._up[program.name] = asyncio.Event()
        keeper = asyncio.create_task(self._keep(program), name=program.name)
        keeper.add_done_callback(self._note_failure)
        self._keepers.add(keeper)
        return up

    def settle(self) -> None:
        """The stack is up: from now on a program that ends is started again for ever."""
        self._settled = True

    async def stop(self, stage_s: Sequence[float]) -> None:
        """End everything: stage by stage SIGTERM and at most so many seconds; what is then left is killed."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for stage, within_s in enumerate(stage_s):
            children = [life.child for life in self.lives.values() if life.program.stop_stage == stage]
            await _end(children, signal.SIGTERM, within_s)
        await _end([life.child for life in self.lives.values()], signal.SIGKILL, UP_TIMEOUT_S)
        self.lives.clear()

    async def _keep(self, program: Program) -> None:
        failures, loop = 0, asyncio.get_running_loop()
        while True:
            born_s = loop.time()
            code = await self._live(program)
            failures = 1 if loop.time() - born_s > SOUND_LIFE_S else failures + 1
            if not self._settled and code == CONFIG_EXIT_CODE:
                raise ConfigError(_obituary(program, code))
            if not self._settled and failures >= START_ATTEMPTS:
                raise StartFailed(_obituary(program, code))
            pause_s = 0.0 if failures == 1 else min(FIRST_BACKOFF_S * 2 ** (failures - 2), self._longest_backoff_s)
            log.warning("program_ended", program=program.name, how=_how(code), starts_again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            failpoint("supervisor.restart")

    async def _live(self, program: Program) -> int:
        """One life, to its end."""
        incarnation = secrets.token_hex(16)
        child = spawn(
            program.argv,
            environ=program.environ(incarnation),
            log_path=program.log_path,
            pass_fds=program.pass_fds,
        )
        life = self.lives[program.name] = Life(program, incarnation, child)
        self._on_change()
        if await _comes_up(program, child):
            self._up[program.name].set()
        code = await child.wait()
        del self.lives[program.name]
        self._on_end(life)
        self._on_change()
        return code

    def _note_failure(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and (error := keeper.exception()) and not self.failure.done():
            self.failure.set_exception(error)


async def _comes_up(program: Program, child: Child) -> bool:
    """Whether `once_up` returned in time and the child lives; a child that does not come up is killed."""
    if program.once_up is None:
        return True
    probe = asyncio.ensure_future(program.once_up())
    dead = asyncio.ensure_future(child.exited.wait())
    try:
        await asyncio.wait((probe, dead), timeout=UP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        up = probe.done() and not probe.exception() and not child.exited.is_set()
    finally:
        for task in (probe, dead):
            task.cancel()
        await asyncio.gather(probe, dead, return_exceptions=True)
    if not up:
        child.signal(signal.SIGKILL)
    return up


async def _end(children: Sequence[Child], number: signal.Signals, within_s: float) -> None:
    for child in children:
        child.signal(number)
    if children:
        await asyncio.wait([asyncio.ensure_future(child.wait()) for child in children], timeout=within_s)


def _obituary(program: Program, code: int) -> str:
    lines = log_tail(program.log_path, SHOWN_LOG_LINES)
    return "\n".join([f"{program.name}: {_how(code)}; {program.log_path} ends:", *(f"  {line}" for line in lines)])


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
