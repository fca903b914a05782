"""Named points of the protocol at which a process can be made to die, freeze, stumble or garble: for tests of faults.

Off unless a setting arms one: `failpoint("…")` is then one look at one attribute. POINTS is the whole list; a test sees
to it that each is in the code exactly once. Specifications read `name=action[:argument][@n]`, separated by commas: at
the n-th time that the process comes by (the first by default), and only then, it will

    kill        end by SIGKILL
    exit:C      end with exit code C (1)
    pause:S     freeze as by SIGSTOP, and thaw after S seconds (2)
    delay:S     stand still for S seconds, this thread alone (0.1)
    raise       raise PlantedFault
    corrupt     go on with bytes that nobody can read, where the point has bytes
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from libs.contracts.errors import ConfigError
from libs.runtime.logs import get_logger

POINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gateway.publish.before": "the request is not in its queue yet",
        "gateway.publish.after": "the broker has confirmed the request",
        "gateway.accepted": "a tokenizer says that the request is accepted",
        "gateway.frame.in": "a frame has arrived and is not read yet (bytes)",
        "gateway.log.append": "tokens of a frame are in the log, the scheduler is not told of an end",
        "gateway.resend": "missing positions are to be asked for",
        "gateway.cancel": "a scheduler is to be told that nobody waits for a request",
        "gateway.delivered.before": "the log is complete, the scheduler does not know",
        "gateway.delivered.after": "the scheduler has confirmed Delivered",
        "gateway.epoch.answer": "the epoch is raised, the answer is not sent",
        "tokenizer.pulled": "a request was taken from the queue",
        "tokenizer.publish.before": "the sequence is made and not stored",
        "tokenizer.publish.after": "the sequence is stored, the gateway does not know",
        "tokenizer.accepted.after": "the gateway has accepted, the request is not acknowledged",
        "tokenizer.ack.before": "nothing is left to do but to acknowledge",
        "tokenizer.ack.after": "the request is acknowledged",
        "scheduler.term.claim": "the queues are declared, the term is not claimed",
        "scheduler.term.claimed": "the term is claimed, nobody is heard yet",
        "scheduler.cell.open": "the first worker has told what the cell can hold",
        "scheduler.pulled": "a sequence was taken from the queue",
        "scheduler.hello": "a worker has dialled and said Hello",
        "scheduler.decided": "commands are decided, none is carried out",
        "scheduler.carried": "all commands of a turn are on their way",
        "scheduler.order.send": "an order is about to leave",
        "scheduler.snapshot.send": "a Snapshot is about to leave",
        "scheduler.hand_over": "an order is about to leave that adds a sequence with its KV",
        "scheduler.control.in": "a gateway asks or tells: Cancel, StopAt, Resend, Delivered",
        "scheduler.ack": "a sequence is done, its queue message is not acknowledged",
        "scheduler.tell": "an end is to be told to a gateway",
        "scheduler.epoch.ask": "a gateway is to be asked for its log, mostly after an epoch was raised",
        "scheduler.epoch.answered": "the gateway has answered with its log",
        "scheduler.kill.before": "a host is to be told to kill a worker",
        "scheduler.kill.gone": "the host says that the worker is gone",
        "worker.attach": "a leader is known, the link is not dialled",
        "worker.hello": "the link is open, Hello is to be sent",
        "worker.version.taken": "an order is taken at a step boundary, its step is not begun",
        "worker.swap.out": "a block of a preempted sequence is in the host tier, Began is not sent",
        "worker.swap.in": "a block is back from the host tier, its step is not begun",
        "worker.began": "Began is to be sent",
        "worker.step.before": "a step has its rows and is not computed",
        "worker.step.published": "KV and fill counts of a step are in the pool, nobody knows its tokens",
        "worker.step.absorbed": "a step is judged, nothing of it is told",
        "worker.frame.before": "a frame is to be published (bytes)",
        "worker.frame.after": "the frames of a step are published, its result is not sent",
        "worker.result.send": "a message to the scheduler is about to leave",
        "worker.ack": "the scheduler has acknowledged steps",
        "host.kill.received": "the host agent is to kill a worker",
        "host.kill.gone": "the worker is gone, the host agent has not answered",
        "supervisor.restart": "a program has ended and is to be started again",
    }
)
ACTIONS: Final = ("kill", "exit", "pause", "delay", "raise", "corrupt")
PAUSE_S: Final = 2.0
DELAY_S: Final = 0.1
UNREADABLE: Final = b"\xff"  # an endless tag: no message begins so

log = get_logger("failpoints")


class PlantedFault(Exception):
    """What `raise` raises: no type that anybody handles."""


@dataclass(slots=True)
class Armed:
    """What happens after `passes` more times."""

    action: str
    argument: str
    passes: int


def parse(specification: str) -> dict[str, Armed]:
    """Points by name. Raises ConfigError for a name that is no point, and for what is no action."""
    points: dict[str, Armed] = {}
    for text in filter(None, (part.strip() for part in specification.split(","))):
        name, _, what = text.partition("=")
        what, _, count = what.partition("@")
        action, _, argument = what.partition(":")
        if name not in POINTS:
            raise ConfigError(f"no failpoint {name!r}; `headrace failpoints` lists them")
        if action not in ACTIONS or (count and not count.isdecimal()) or not _is_number(argument):
            raise ConfigError(f"failpoint {text!r}: write name=action[:number][@n], action one of {', '.join(ACTIONS)}")
        points[name] = Armed(action, argument, max(1, int(count or 1)))
    return points


class Armory:
    """The points of this process that are armed now."""

    def __init__(self) -> None:
        self.is_armed = False
        self._points: dict[str, Armed] = {}
        self._file: Path | None = None
        self._names: tuple[str, str] = ("", "")
        self._seen: tuple[int, int] = (0, 0)
        self._lock = threading.Lock()

    def arm(self, specification: str, file: str = "", instance: str = "") -> None:
        """Arm these points, and from now on those that `file` has for this process. Raises ConfigError."""
        self._points = parse(specification)
        self._file = Path(file) if file else None
        self._names = (str(os.getpid()), instance)
        self.is_armed = bool(self._points or self._file)

    def hit(self, name: str, payload: bytes = b"") -> bytes:
        """Do what is armed at this point, if it is its turn. Returns the payload to go on with."""
        with self._lock:
            self._read_file()
            armed = self._points.get(name)
            if armed is None:
                return payload
            armed.passes -= 1
            if armed.passes > 0:
                return payload
            del self._points[name]
        log.warning("failpoint", point=name, action=armed.action)
        return _act(armed, name, payload)

    def _read_file(self) -> None:
        """Lines `who specification`: who is a pid, so that a later life comes up unarmed, or an instance's name."""
        if self._file is None:
            return
        try:
            stat = self._file.stat()
            if (stat.st_mtime_ns, stat.st_ino) == self._seen:
                return
            self._seen = (stat.st_mtime_ns, stat.st_ino)
            lines = self._file.read_text().splitlines()
        except OSError:
            return
        split = (line.partition(" ") for line in lines)
        self._points = parse(",".join(specification for who, _, specification in split if who in self._names))


_ARMORY: Final = Armory()  # of the process: a fault can be planted anywhere, so no parameter carries it there


def arm(specification: str, file: str = "", instance: str = "") -> None:
    """Arm points of this process. Raises ConfigError."""
    _ARMORY.arm(specification, file, instance)


def failpoint(name: str) -> None:
    """A place where a fault can be planted."""
    if _ARMORY.is_armed:
        _ARMORY.hit(name)


def failpoint_bytes(name: str, payload: bytes) -> bytes:
    """A place where a fault can be planted, and which has bytes to spoil."""
    return _ARMORY.hit(name, payload) if _ARMORY.is_armed else payload


def _act(armed: Armed, name: str, payload: bytes) -> bytes:
    match armed.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(int(armed.argument or 1))
        case "pause":
            _freeze(float(armed.argument or PAUSE_S))
        case "delay":
            time.sleep(float(armed.argument or DELAY_S))
        case "raise":
            raise PlantedFault(name)
        case "corrupt":
            return UNREADABLE * len(payload)
    return payload


def _freeze(seconds: float) -> None:
    """Stop all threads of this process; somebody else must wake it, so that one is started first."""
    waker = subprocess.Popen(
        ["/bin/sh", "-c", f"sleep {seconds:g}; kill -CONT {os.getpid()}"],
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.kill(os.getpid(), signal.SIGSTOP)
    waker.wait()


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() or not text
