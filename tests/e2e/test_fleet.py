"""Programs under the supervisor's care: started again, stopped in order, killed on a scheduler's word."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.host_agent import HostAgent, StaleTerm
from deploy.local import fleet as fleet_module
from deploy.local.child import spawn
from deploy.local.fleet import Fleet, Program, StartFailed
from deploy.local.workers import FleetWorkers
from libs.contracts import codec
from libs.contracts.errors import ConfigError
from libs.contracts.messages import Gone, Incarnations, Kill, ListIncarnations
from libs.runtime.pool_file import is_used
from tests.fakes.bus import FakeBus

pytestmark = pytest.mark.e2e

SLEEPER = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
USER = (
    "import os, sys, time; from libs.runtime.pool_file import mark_use; mark_use({fd}, os.environ['LIFE']); " + SLEEPER
)
WITHIN_S = 10.0


class Kept:
    """A fleet and a way to wait for its changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = asyncio.Event()
        self.fleet = Fleet(self._changed.set)

    def program(self, name: str, code: str, **more: Any) -> Program:
        def environ(incarnation: str) -> Mapping[str, str]:
            return {"LIFE": incarnation}

        settings = {"stop_stage": 0, **more}
        return Program(
            name=name,
            argv=(sys.executable, "-c", code),
            environ=environ,
            log_path=self._folder / f"{name}.log",
            **settings,
        )

    async def another_life(self, name: str, than: str) -> str:
        """The incarnation of `name` once it is not `than`."""
        async with asyncio.timeout(WITHIN_S):
            while (life := self.fleet.lives.get(name)) is None or life.incarnation == than:
                self._changed.clear()
                await self._changed.wait()
        return life.incarnation


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    made = Kept(tmp_path)
    yield made
    await made.fleet.stop((1.0, 1.0))


async def test_a_program_that_ends_is_started_again_as_another_life(kept: Kept) -> None:
    """Once the stack is up, every end is followed by a new start with a new name."""
    kept.fleet.settle()
    kept.fleet.add(kept.program("p", SLEEPER))
    first = await kept.another_life("p", "")

    kept.fleet.lives["p"].child.signal(signal.SIGKILL)

    assert await kept.another_life("p", first) != first


async def test_a_start_that_cannot_work_ends_at_once(kept: Kept) -> None:
    """Exit code 2 says that trying again is useless; the error shows the end of the log."""
    kept.fleet.add(kept.program("p", "import sys; print('HR_P_PORT: required'); sys.exit(2)"))

    with pytest.raises(ConfigError, match=r"exit code 2(?s:.)*HR_P_PORT: required"):
        await asyncio.wait_for(kept.fleet.failure, WITHIN_S)


async def test_a_start_that_fails_again_and_again_is_given_up(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the stack is up a program has three tries."""
    monkeypatch.setattr(fleet_module, "FIRST_BACKOFF_S", 0.001)
    kept.fleet.add(kept.program("p", "print('try', flush=True); raise SystemExit(1)"))

    with pytest.raises(StartFailed):
        await asyncio.wait_for(kept.fleet.failure, WITHIN_S)
    assert kept.program("p", "").log_path.read_text().split().count("try") == fleet_module.START_ATTEMPTS


async def test_stages_stop_one_after_the_other_and_the_deaf_are_killed(kept: Kept) -> None:
    """SIGTERM by stage; what does not listen is killed after the last."""
    deaf = kept.program("deaf", DEAF)
    kept.fleet.add(deaf)
    kept.fleet.add(kept.program("late", SLEEPER, stop_stage=1))
    await kept.another_life("deaf", "")
    await kept.another_life("late", "")
    children = {name: life.child for name, life in kept.fleet.lives.items()}
    async with asyncio.timeout(WITHIN_S):
        while "deaf" not in (deaf.log_path.read_text() if deaf.log_path.exists() else ""):
            await asyncio.sleep(0.01)

    await kept.fleet.stop((0.2, 1.0))

    assert children["deaf"].exit_code == -signal.SIGKILL
    assert children["late"].exit_code == -signal.SIGTERM


async def test_the_host_agent_answers_gone_when_the_process_no_longer_exists(kept: Kept) -> None:
    """Kill ends the life of that name and no other, and may be repeated."""
    kept.fleet.settle()
    pool = os.memfd_create("pool")
    kept.fleet.add(kept.program("decode_worker-0", USER.format(fd=pool), pass_fds=(pool,)))
    kept.fleet.add(kept.program("decode_worker-1", SLEEPER))
    doomed = await kept.another_life("decode_worker-0", "")
    spared = await kept.another_life("decode_worker-1", "")
    lives = kept.fleet.lives
    child = lives["decode_worker-0"].child
    async with asyncio.timeout(WITHIN_S):
        while not is_used(pool, doomed):
            await asyncio.sleep(0.01)
    agent = HostAgent(FakeBus().as_bus(), "h", FleetWorkers(lives, lives, pool))

    async def ask(message: Kill | ListIncarnations) -> Any:
        return codec.decode_in("HostReply", await agent.answer(codec.encode_in("HostMessage", message)))

    listed = await ask(ListIncarnations())
    gone = await ask(Kill(doomed))
    again = await ask(Kill(doomed))

    assert isinstance(listed, Incarnations) and listed.incarnations == (doomed,), "the other one loads"
    assert gone == again == Gone(doomed)
    await ask(ListIncarnations(5, "c0"))
    with pytest.raises(StaleTerm):
        await ask(Kill(spared, 4, "c0"))
    assert child.exit_code == -signal.SIGKILL
    assert kept.fleet.lives["decode_worker-1"].incarnation == spared
    os.close(pool)


async def test_a_child_sees_its_own_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the supervisor's environment reaches a child."""
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    log = tmp_path / "log"
    child = spawn(
        [sys.executable, "-c", "import os; print(sorted(os.environ))"], environ={"LANG": "C.UTF-8"}, log_path=log
    )

    assert await child.wait() == 0
    assert "SECRET_OF_THE_SHELL" not in log.read_text()
    assert not Path(f"/proc/{child.pid}").exists()
