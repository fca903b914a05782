"""Whole stacks for the end-to-end tests: `headrace up` in a process of its own, stopped by a signal, nothing left."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from cli.replay import replay_files
from deploy.local.run_dir import RunDir, State
from deploy.local.status import ask_status

KEPT_STACKS = 2
STOP_S = 5.0
SMALL_POOL = {"kv_blocks": 1024}

StackFactory = Callable[..., "Stack"]


class Stack:
    """A running stack. Options are those of `headrace up`, `_` for `-`; `otlp_endpoint` is set for every service."""

    def __init__(self, run_dir: Path, **options: Any) -> None:
        self.options = {"port": 0, **SMALL_POOL, **options}
        self.run_dir = RunDir(run_dir)
        own = ["--run-dir", str(run_dir), "--set", f"scheduler.event_log_path={self.run_dir.logs / 'events.jsonl'}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli", "up", *own, *_arguments(self.options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = self._read_until("print(")
        self.base_url, self.model = self.state().base_url, self.state().model

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def state(self) -> State:
        state = self.run_dir.read_state()
        assert state is not None, f"no state in {self.run_dir.path}"
        return state

    def status(self) -> dict[str, Any]:
        """What `headrace status --json` prints, without its start-up; in a thread, for callers that run a loop."""
        with ThreadPoolExecutor(1) as pool:
            status = pool.submit(asyncio.run, ask_status(self.state())).result()
        built: dict[str, Any] = msgspec.to_builtins(status)
        return built

    def processes(self, service: str) -> list[psutil.Process]:
        """The live processes of one service."""
        return [psutil.Process(child.pid) for child in self.state().children if child.name.startswith(f"{service}-")]

    def program(self, name: str) -> list[psutil.Process]:
        """The live process of this name: of a broker, or one of a service."""
        return [psutil.Process(child.pid) for child in self.state().children if child.name == name and child.pid]

    @property
    def event_logs(self) -> list[Path]:
        """Of each term so far."""
        return sorted(self.run_dir.logs.glob("events.*.jsonl"))

    def prefilled_elsewhere(self) -> int:
        """Sequences whose first token a prefill worker drew. Stops the stack, so that its event log is whole."""
        if self.alive:
            self.stop()
        prefill, first_tokens = set(), set()
        lines = [line for path in self.event_logs for line in path.read_bytes().splitlines()]
        for line in lines:
            for kind, event in ((event["kind"], event["body"]) for event in json.loads(line).get("events", ())):
                if kind == "Hello" and event["role"] == "prefill":
                    prefill.add(event["incarnation"])
                elif kind == "StepResult" and event["incarnation"] in prefill:
                    first_tokens |= {row["sequence"] for row in event["rows"] if row["ids"] and row["position"] == 0}
        return len(first_tokens)

    def stop(self, number: signal.Signals = signal.SIGINT) -> float:
        """Stop it as a terminal would; seconds until it was gone. Nothing may be left."""
        assert not shared_memory_files(self.run_dir.path)
        started_s = time.monotonic()
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=STOP_S)
        took_s = time.monotonic() - started_s
        assert self.process.returncode == 0, self.output + rest
        assert processes_of(self.run_dir.path) == []
        replay_files(self.event_logs)  # what its schedulers decided is decided again
        return took_s

    def kill(self) -> None:
        """End the supervisor as a crash would; its children are the kernel's business."""
        self.process.kill()
        self.process.communicate()

    def _read_until(self, marker: str) -> str:
        """The output up to the line with `marker`; fails with all of it when the process ends before."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if marker in line:
                return "".join(lines)
        raise AssertionError(f"`headrace up` ended with {self.process.wait()}:\n{''.join(lines)}")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackFactory]:
    """stack(**options) is a running stack with these options: the one that runs already, or a new one."""
    kept: list[Stack] = []

    def get(**options: Any) -> Stack:
        wanted = {"port": 0, **SMALL_POOL, **options}
        kept[:] = [running for running in kept if running.alive]
        found = next((running for running in kept if running.options == wanted), None)
        if found is None:
            while len(kept) >= KEPT_STACKS:
                kept.pop(0).stop()
            found = Stack(tmp_path_factory.mktemp("stack"), **options)
        else:
            kept.remove(found)
        kept.append(found)
        return found

    yield get
    for running in kept:
        if running.alive:
            running.stop()


@pytest.fixture
def hybrid(stack: StackFactory) -> Stack:
    """The decode worker computes every prompt."""
    return stack(role="hybrid")


@pytest.fixture
def disaggregated(stack: StackFactory) -> Stack:
    """The prefill worker computes every prompt."""
    return stack(role="disaggregated")


def processes_of(run_dir: Path) -> list[str]:
    """Processes, zombies aside, whose environment, command or open files name the run directory."""
    return [f"{pid} {command}" for pid, command, named in _scan(run_dir) if named]


def shared_memory_files(run_dir: Path) -> list[str]:
    """Files in /dev/shm that a process of this run directory has mapped or open."""
    found = []
    for pid, _, named in _scan(run_dir):
        if named:
            maps = _read(Path(f"/proc/{pid}/maps")).decode(errors="replace").splitlines()
            found += [line for line in maps if "/dev/shm/" in line]
            found += [path for path in _open_files(pid) if path.startswith("/dev/shm/")]
    return found


def _scan(run_dir: Path) -> Iterator[tuple[int, str, bool]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid, command = int(entry.name), _read(entry / "cmdline")
        mentions = command + _read(entry / "environ")
        named = os.fsencode(run_dir) in mentions or any(p.startswith(str(run_dir)) for p in _open_files(pid))
        yield pid, command.replace(b"\0", b" ").decode(errors="replace"), named


def _open_files(pid: int) -> list[str]:
    paths = []
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            paths.append(os.readlink(descriptor))
    except OSError:
        pass  # it ended, or closed a file, while we looked
    return paths


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _arguments(options: dict[str, Any]) -> list[str]:
    arguments = []
    for name, value in options.items():
        if name == "otlp_endpoint":
            arguments += ["--set", f"*.otlp_endpoint={value}"]
        elif name == "settings":
            arguments += [part for setting in value for part in ("--set", setting)]
        elif isinstance(value, list):
            arguments += [part for one in value for part in (f"--{name.replace('_', '-')}", str(one))]
        else:
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    return arguments
