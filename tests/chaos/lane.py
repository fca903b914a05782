"""A stack under test, mostly with the fake engine: arming faults, killing and freezing, waiting until it is at rest."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from cli.replay import replay_files
from deploy.local.options import BROKERS
from deploy.local.run_dir import RunDir, Running, State, is_alive
from deploy.local.status import StackStatus, gather, merge
from libs.contracts import flow
from libs.contracts.errors import HeadraceError
from libs.contracts.messages import ServiceStatus
from libs.runtime.bus import Bus
from tests.chaos.client import ANSWER_S, perform
from tests.chaos.history import History, Operation, Quiet
from tests.e2e.conftest import processes_of, shared_memory_files
from tests.fakes.tiny_model import make_tiny_model
from tests.fakes.worker_process import CORRUPTION

READY_S = 60.0
BUGS = ("handler_failed", "background_failed", "not_handled")
VIOLATION = "exactness_violation"  # the code of a broken request
FAILPOINT = "failpoint"
POLL_S = 0.03
OPTIONS = {
    "port": 0,
    "dtype": "float32",
    "kernels": "torch",  # for the plain layout of its pool; nothing here loads them
    "prefill": 1,
    "decode": 2,
    "tokenizers": 2,
    "kv_blocks": 256,
    "longest_backoff_s": 0.1,
}


class Lane:
    """One stack. `open` it, use it, `close` it; after a supervisor's death it can be opened again."""

    def __init__(self, folder: Path, role: str, options: Mapping[str, Any] = OPTIONS) -> None:
        self.role, self.model = role, "fake"
        self.run_dir = RunDir(folder / "run")
        self._armed, self._supervisor_log = folder / "failpoints", folder / "supervisor.log"
        scheduler = {"instance": "scheduler-0", "event_log_path": str(self.run_dir.logs / "events.jsonl")}
        scheduler |= options.get("scheduler", {})
        self._options = {
            **{name: value for name, value in options.items() if name != "scheduler"},
            "run_dir": str(self.run_dir.path),
            "model_dir": str(options.get("model_dir") or make_tiny_model(folder)),
            "model": self.model,
            "role": role,
            "failpoints_file": str(self._armed),
            "overrides": {"scheduler": scheduler},
        }
        self._log_ends: dict[Path, int] = {}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Lane"]:
        """A running stack within the block. What its schedulers decided is decided again when it has ended."""
        self.disarm()
        with self._supervisor_log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fakes.stack_process", json.dumps(self._options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            assert self._process.stdout is not None
            line = await asyncio.to_thread(self._process.stdout.readline)
            assert line.startswith("ready"), f"the stack did not come up: see {self.run_dir.logs}"
            self.base_url = line.split()[1]
            self._log_ends = {path: path.stat().st_size for path in self.run_dir.logs.glob("*.log")}
            async with (
                httpx.AsyncClient(timeout=ANSWER_S) as self._http,
                self._bus("supervisor") as self._asking,
                self._bus("scheduler") as self._looking,
            ):
                yield self
        finally:
            await asyncio.to_thread(self._process.communicate)  # closes its stdin, which ends it
        event_logs = sorted(self.run_dir.logs.glob("events.*.jsonl"))
        assert event_logs
        await asyncio.to_thread(replay_files, event_logs)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def state(self) -> State:
        state = self.run_dir.read_state()
        assert state is not None, "the supervisor has no state"
        return state

    def pids(self, service: str) -> list[int]:
        """The live processes of a service; `supervisor` is one, too."""
        state = self.state()
        if service == "supervisor":
            return [state.pid]
        return [child.pid for child in state.children if child.pid and child.name.rpartition("-")[0] == service]

    def has_stopped(self) -> bool:
        """Whether the supervisor is frozen."""
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def signal(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def arm(self, *lines: str) -> None:
        """Lines `who specification`; seen by a process at its next point."""
        scratch = self._armed.with_suffix(".new")
        scratch.write_text("\n".join(lines) + "\n")
        scratch.replace(self._armed)

    def disarm(self) -> None:
        self.arm("")

    def new_log_events(self) -> list[dict[str, Any]]:
        """What the services have logged since the last call."""
        return [event for path in sorted(self.run_dir.logs.glob("*.log")) for event in self._news(path)]

    def _news(self, path: Path) -> Iterator[dict[str, Any]]:
        with path.open("rb") as file:
            file.seek(self._log_ends.get(path, 0))
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self._log_ends[path] = self._log_ends.get(path, 0) + whole
        for line in text[:whole].splitlines():
            with suppress(ValueError):
                parsed = json.loads(line)
                if isinstance(parsed, dict):
                    yield parsed

    def keep_logs(self, folder: Path) -> Path:
        """Copy the logs of this stack; the next start empties them."""
        shutil.copytree(self.run_dir.logs, folder, dirs_exist_ok=True)
        return folder

    async def perform(self, operation: Operation, more: Mapping[str, Any] | None = None) -> None:
        """`more` are further fields of the request's body."""
        await perform(self._http, self.base_url, self.model, operation, more)

    async def come_to_rest(self, history: History, within_s: float) -> None:
        """Wait until every process is ready and nothing is left to do, and note what is then there."""
        deadline_s = time.monotonic() + within_s
        while True:
            status, queued = await self.status(), await self._queued()
            is_quiet = status is not None and _is_quiet(status) and not any(queued.values())
            if is_quiet or time.monotonic() > deadline_s:
                break
            await asyncio.sleep(POLL_S)
        history.rested_s = time.monotonic()
        if status is not None:
            history.tokens_recomputed = status.recomputed_tokens
            history.quiet = await asyncio.to_thread(self._quiet, status, queued)

    def _quiet(self, status: StackStatus, queued: dict[str, int]) -> Quiet:
        blocks = status.blocks
        events = self.new_log_events()
        known = {str(child.pid) for child in self.state().children} | {str(self._process.pid)}
        found = processes_of(self.run_dir.path)
        return Quiet(
            blocks={name: getattr(blocks, name) for name in ("total", "free", "cached", "held", "freeing")},
            waiting=status.waiting,
            running=status.running,
            queued=queued,
            strangers=tuple(line for line in found if line.split()[0] not in known),
            shared_files=tuple(shared_memory_files(self.run_dir.path)),
            corruptions=tuple(str(event["what"]) for event in events if event.get("event") == CORRUPTION),
            violations=tuple(json.dumps(event) for event in events if _is_bug(event))
            + (() if status.ready else (f"not ready: {[s for s in status.services if not s.ready]}",)),
        )

    async def status(self) -> StackStatus | None:
        """None while the broker does not answer."""
        state = self.state()
        running = sum(child.pid != 0 and child.name not in BROKERS for child in state.children)
        with suppress(HeadraceError):
            return merge(state, await gather(self._asking, running, within_s=0.3))
        return None

    async def answers(self) -> dict[int, ServiceStatus]:
        """What each process that answers says of itself, by pid."""
        return await gather(self._asking, len(self.state().children), within_s=0.3)

    def supervisor_events(self) -> list[dict[str, Any]]:
        """What the supervisor has logged so far."""
        return [event for event in map(_parsed, self._supervisor_log.read_bytes().splitlines()) if event]

    async def _queued(self) -> dict[str, int]:
        """Messages in the work queues; an acknowledged one is not there any more. −1: the broker does not say."""
        counts = {}
        for stream in (flow.REQUESTS_STREAM, flow.SEQUENCES_STREAM):
            counts[stream] = -1
            with suppress(HeadraceError, KeyError):
                answer = await self._looking.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=0.5)
                counts[stream] = json.loads(answer)["state"]["messages"]
        return counts

    @asynccontextmanager
    async def _bus(self, service: str) -> AsyncIterator[Bus]:
        users = json.loads(self.run_dir.nats_config.read_text())["authorization"]["users"]
        password = next(user["password"] for user in users if user["user"] == service)
        async with Bus.connect(self.state().nats_url, service=service, user=service, password=password) as bus:
            yield bus


def _is_quiet(status: StackStatus) -> bool:
    blocks = status.blocks
    return status.ready and not (blocks.held or blocks.freeing or status.waiting or status.running)


def _parsed(line: bytes) -> dict[str, Any]:
    """Empty for what is no JSON object."""
    with suppress(ValueError):
        parsed = json.loads(line)
        return parsed if isinstance(parsed, dict) else {}
    return {}


def _is_bug(event: dict[str, Any]) -> bool:
    return event.get("event") in BUGS or event.get("code") == VIOLATION


def is_gone(running: Running) -> bool:
    return not is_alive(running)
