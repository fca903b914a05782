"""The run directory: who runs here (a lock), what runs (state.json), and cleaning up after a killed supervisor."""

import fcntl
import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from libs.contracts.errors import ConfigError
from libs.runtime.ring import SUFFIX

SOCKET_PATH_BYTES: Final = 107  # sun_path, less the closing zero
PRIVATE: Final = 0o600

Phase = Literal["starting", "ready", "stopping"]


class Running(msgspec.Struct, frozen=True):
    """A process. `born` is its start time in clock ticks: together with the pid it names one process for good."""

    name: str
    pid: int
    born: int


class State(msgspec.Struct, frozen=True):
    """What other commands need to know of a running stack. Holds the supervisor's NATS password: mode 0600."""

    pid: int  # of the supervisor, and when it was born
    born: int
    phase: Phase
    base_url: str  # of the API, with its version
    model: str
    needs_key: bool
    kv_blocks: int
    block_tokens: int
    pool_bytes: int
    nats_url: str
    nats_password: str
    children: tuple[Running, ...]
    other_models: tuple[str, ...] = ()  # served beside `model`
    grpc_address: str = ""  # of headrace.v1.Inference; empty where no port is set

    @property
    def supervisor(self) -> Running:
        return Running("supervisor", self.pid, self.born)


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of one run directory. Only names listed here are ever deleted, so a directory with other files is safe."""

    path: Path

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    def trace_dir(self, name: str) -> Path:
        """The trace ring of one process after another under this name."""
        return self.traces / name

    @property
    def nats_config(self) -> Path:
        return self.path / "nats.conf"

    @property
    def nats_store(self) -> Path:
        return self.path / "jetstream"

    @property
    def valkey_config(self) -> Path:
        return self.path / "valkey.conf"

    @property
    def valkey_socket(self) -> Path:
        return self.path / "valkey.sock"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make the directory, readable by its owner alone. Raises ConfigError when that cannot be."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.chmod(0o700)
            self.logs.mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot use the run directory {self.path}: {error.strerror}") from error
        if len(os.fsencode(self.valkey_socket)) > SOCKET_PATH_BYTES:
            raise ConfigError(f"the run directory's path is too long for a socket: {self.path}; choose a --run-dir")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory as its one supervisor. Raises ConfigError while another holds it."""
        self.create()
        with self.lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(f"a stack already runs in {self.path}; `headrace down` stops it") from error
            yield

    def clean(self) -> None:
        """Remove what an earlier run left, once its processes are gone; logs of this run start empty."""
        if state := self.read_state():
            for child in state.children:
                end(child)
        self.remove_run_files()
        for log in self.logs.glob("*.log"):
            log.write_bytes(b"")
        for segment in self.traces.glob(f"*/*{SUFFIX}"):
            segment.unlink(missing_ok=True)

    def remove_run_files(self) -> None:
        """Remove everything but logs, traces and lock: credentials, sockets, streams, state."""
        for path in (self.state, self.nats_config, self.valkey_config, self.valkey_socket):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.nats_store, ignore_errors=True)

    def write_private(self, path: Path, text: str) -> None:
        """Write a file that only its owner reads; it appears whole or not at all."""
        scratch = path.with_name(f".{path.name}")
        scratch.unlink(missing_ok=True)
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w") as file:
            file.write(text)
        scratch.replace(path)

    def write_state(self, state: State) -> None:
        self.write_private(self.state, msgspec.json.encode(state).decode())

    def read_state(self) -> State | None:
        """The state on disk, be its supervisor alive or not; None when there is none that can be read."""
        try:
            return msgspec.json.decode(self.state.read_bytes(), type=State)
        except (OSError, msgspec.MsgspecError):
            return None

    def live_state(self) -> State | None:
        """The state of a supervisor that is alive, or None."""
        state = self.read_state()
        return state if state and is_alive(state.supervisor) else None


def process(name: str, pid: int) -> Running:
    """`pid` with its start time, 0 when it is gone already."""
    return Running(name, pid, _born(pid))


def is_alive(running: Running) -> bool:
    return running.born != 0 and _born(running.pid) == running.born


def end(running: Running, *, within_s: float = 2.0) -> None:
    """Kill a process of an earlier run that outlived its supervisor, and wait for its end."""
    if not is_alive(running):
        return
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(running.pid)
        try:
            if is_alive(running):  # still: the descriptor is that process's
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                wait_readable(pidfd, within_s)
        finally:
            os.close(pidfd)


def wait_readable(descriptor: int, within_s: float) -> bool:
    """Whether a descriptor (a pidfd: its process has ended) becomes readable in time."""
    return bool(select.select([descriptor], [], [], within_s)[0])


def _born(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
