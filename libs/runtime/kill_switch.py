"""A life's kill switch: lets whoever holds a folder end one process that reaches it, and see when that has ended.

For workers in containers of their own: who made their pool is not their parent, does not see their process, and may be
restarted itself. The switch is a named pipe that only that process reads. The kernel turns its first byte into SIGKILL,
be the process stopped or hung, and closes it when the process no longer exists, its memory given up before.
A container's process 1 is immune to it, so an image starts its program under an init.
"""

import errno
import fcntl
import os
import signal
from pathlib import Path
from typing import Final

F_SETSIG: Final = 10  # Linux; the fcntl module does not name it
SUFFIX: Final = ".switch"


def arm(folder: Path, incarnation: str) -> int:
    """Make this process's switch under the name of its life; it works once it has that name.

    Returns its descriptor, to be kept open for life. Raises OSError.
    """
    scratch = folder / f".{incarnation}"
    os.mkfifo(scratch, 0o600)
    fd = os.open(scratch, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    scratch.rename(folder / f"{incarnation}{SUFFIX}")
    return fd


def switches(folder: Path) -> dict[str, Path]:
    """Incarnation → its switch, of every life that has armed one and is not tidied away."""
    return {path.name.removesuffix(SUFFIX): path for path in folder.glob(f"[!.]*{SUFFIX}")}


def take(switch: Path) -> int | None:
    """A descriptor that `pull` takes, and that has an error to poll once the process is gone; None when it is."""
    try:
        return os.open(switch, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):  # nobody reads it, or somebody tidied up
            return None
        raise


def pull(fd: int) -> None:
    """End the process; nothing happens when it is gone."""
    try:
        os.write(fd, b"x")
    except (BrokenPipeError, BlockingIOError):  # the latter: it was pulled often before
        return
