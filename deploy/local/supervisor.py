"""Runs one stack from nothing to ready and back to nothing: brokers, pool, services, host agent, state.json."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from deploy.host_agent import HostAgent
from deploy.local.environment import WORKERS, service_environ
from deploy.local.fleet import Fleet, Life, Program
from deploy.local.nats_server import nats_program
from deploy.local.options import BROKERS, SERVICES, UpOptions
from deploy.local.run_dir import Phase, RunDir, Running, State, process
from deploy.local.stack import SUPERVISOR, Cell, Stack, settle
from deploy.local.status import gather
from deploy.local.valkey_server import valkey_program
from deploy.local.workers import FleetWorkers
from libs.contracts.errors import Unavailable
from libs.runtime import failpoints
from libs.runtime.bus import Bus
from libs.runtime.process import stop_signal

READY_WINDOW_S: Final = 0.2
START_TIMEOUT_S: Final = 300.0  # a large model takes its time to load
GATEWAY_STAGE, SERVICES_STAGE, BROKERS_STAGE = range(3)
STOP_STAGES_S: Final = (2.0, 1.5, 0.7)  # gateways finish first, brokers go last; 5 s in all with a reserve

Report = Callable[[str, int, int], None]  # what, done, of how many


async def supervise(options: UpOptions, report: Report, on_ready: Callable[[State], None]) -> None:
    """Run a stack until SIGTERM or SIGINT, and leave nothing behind but its logs.

    Raises ConfigError for options that cannot work, another HeadraceError when the stack does not come up.
    """
    failpoints.arm("", options.failpoints_file)
    run_dir = RunDir(options.run_dir)
    with run_dir.locked():
        run_dir.clean()
        stack = settle(options, run_dir)
        try:
            async with stop_signal() as stop:
                await Supervisor(stack, run_dir).run(stop, report, on_ready)
        finally:
            for fd in stack.pool_fds:
                os.close(fd)
            run_dir.remove_run_files()


class Supervisor:
    """One run of one stack in a locked run directory."""

    def __init__(self, stack: Stack, run_dir: RunDir) -> None:
        self._stack, self._run_dir = stack, run_dir
        self._fleet = Fleet(self._write_state, stack.options.longest_backoff_s, self._ended)
        self._cell_of: dict[str, Cell] = {}  # by program
        self._phase: Phase = "starting"
        self._agents: dict[str, HostAgent] = {}  # by cell, once the broker is there

    async def run(self, stop: asyncio.Event, report: Report, on_ready: Callable[[State], None]) -> None:
        """Start everything, then keep it running until `stop`. Raises HeadraceError when it does not come up."""
        serving = asyncio.create_task(self._serve(report, on_ready))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((serving, stopped, self._fleet.failure), return_when=asyncio.FIRST_COMPLETED)
            for outcome in (self._fleet.failure, serving):
                if outcome.done():
                    outcome.result()
        finally:
            self._phase = "stopping"
            self._write_state()
            for task in (serving, stopped):
                task.cancel()
            await asyncio.gather(serving, stopped, return_exceptions=True)
            await self._fleet.stop(STOP_STAGES_S)

    async def _serve(self, report: Report, on_ready: Callable[[State], None]) -> None:
        await self._start_brokers()
        password = self._stack.credentials.nats[SUPERVISOR]
        async with Bus.connect(self._stack.nats_url, service=SUPERVISOR, user=SUPERVISOR, password=password) as bus:
            programs = tuple(self._services())
            for cell in self._stack.cells:
                names = {name for name, owner in self._cell_of.items() if owner is cell and name.startswith(WORKERS)}
                workers = FleetWorkers(self._fleet.lives, names, cell.pool_fd)
                agent = self._agents[cell.name] = HostAgent(bus, cell.host, workers)
                await agent.serve()
            for program in programs:
                self._fleet.add(program)
            await self._await_ready(bus, report)
            self._fleet.settle()
            self._phase = "ready"
            self._write_state()
            on_ready(self._state())
            await asyncio.Event().wait()  # the bus stays open for the host agent

    async def _start_brokers(self) -> None:
        for program in (nats_program, valkey_program):
            up = self._fleet.add(program(self._stack, self._run_dir, BROKERS_STAGE))
            await up.wait()

    async def _await_ready(self, bus: Bus, report: Report) -> None:
        expected = len(self._fleet.programs) - len(BROKERS)
        not_ready = ""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while True:
                    children = [child for child in self._children() if child.name not in BROKERS]
                    answers = await gather(bus, expected, within_s=READY_WINDOW_S)
                    ready = {pid for pid, answer in answers.items() if answer.ready}
                    not_ready = ", ".join(child.name for child in children if child.pid not in ready)
                    report("services ready", expected - sum(child.pid not in ready for child in children), expected)
                    if not not_ready:
                        return
                    await asyncio.sleep(READY_WINDOW_S)
        except TimeoutError as error:
            raise Unavailable(f"not ready after {START_TIMEOUT_S:.0f} s: {not_ready}") from error

    def _services(self) -> Iterator[Program]:
        """Every cell has its own, but for the gateway, which serves all."""
        for service in SERVICES:
            cells = 1 if service == "gateway" else len(self._stack.cells)
            for index in range(cells * self._stack.options.count(service)):
                yield self._service(service, index)

    def _service(self, service: str, index: int) -> Program:
        name = f"{service}-{index}"
        cell = self._cell_of[name] = self._stack.cell_of(service, index)
        package = self._stack.options.worker_package if service in WORKERS else "services"
        return Program(
            name=name,
            argv=(sys.executable, "-m", f"{package}.{service}"),
            environ=partial(service_environ, self._stack, service, index),
            log_path=self._run_dir.log(name),
            stop_stage=GATEWAY_STAGE if service == "gateway" else SERVICES_STAGE,
            pass_fds=cell.pool_fds if service in WORKERS else (),
        )

    def _ended(self, life: Life) -> None:
        if self._agents and life.program.name.startswith(WORKERS):
            cell = self._cell_of[life.program.name].name
            self._agents[cell].ended(life.incarnation, cell)

    def _children(self) -> tuple[Running, ...]:
        lives = self._fleet.lives
        return tuple(
            process(name, lives[name].child.pid) if name in lives else Running(name, 0, 0)
            for name in self._fleet.programs
        )

    def _state(self) -> State:
        stack, own = self._stack, process(SUPERVISOR, os.getpid())
        return State(
            pid=own.pid,
            born=own.born,
            phase=self._phase,
            base_url=stack.base_url,
            grpc_address=stack.grpc_address,
            model=stack.cell.model.name,
            other_models=tuple(cell.model.name for cell in stack.other_cells),
            needs_key=stack.options.needs_key,
            kv_blocks=sum(cell.blocks for cell in stack.cells),
            block_tokens=stack.cell.layout.block_tokens,
            pool_bytes=sum(cell.pool_bytes for cell in stack.cells),
            nats_url=stack.nats_url,
            nats_password=stack.credentials.nats[SUPERVISOR],
            children=self._children(),
        )

    def _write_state(self) -> None:
        self._run_dir.write_state(self._state())
