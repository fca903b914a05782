"""A Docker engine and a compose command: those that are there, or an engine of our own for as long as it is needed."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_S = 30.0
STOP_S = 20.0


class NoEngine(Exception):
    """No engine runs, and none can be started."""


def output(command: Sequence[str], *, check: bool = True, **more: object) -> str:
    """What a command writes; raises CalledProcessError, its stderr shown, when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, **more)  # type: ignore[call-overload]
    if check:
        done.check_returncode()
    return str(done.stdout)


def runs() -> bool:
    """Whether an engine answers."""
    if not shutil.which("docker"):
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def compose_command() -> list[str]:
    """`docker compose`, or `docker-compose` of version 1. Raises NoEngine."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise NoEngine("there is no compose: install docker-compose, or the compose plugin of docker")


@contextmanager
def engine() -> Iterator[None]:
    """An engine that answers: the one that runs, or one started here and stopped at the end. Raises NoEngine."""
    if runs():
        yield
        return
    if os.getuid() != 0 or not shutil.which("dockerd"):
        raise NoEngine("no Docker engine runs, and starting one takes root and dockerd")
    log = Path(tempfile.gettempdir()) / "headrace-dockerd.log"
    with log.open("ab") as out:
        daemon = subprocess.Popen(["dockerd"], stdout=out, stderr=out, start_new_session=True)
    try:
        end_s = time.monotonic() + START_S
        while not runs():
            if daemon.poll() is not None or time.monotonic() > end_s:
                raise NoEngine(f"dockerd does not start; its log is {log}")
            time.sleep(0.2)
        yield
    finally:
        daemon.terminate()
        daemon.wait(STOP_S)
