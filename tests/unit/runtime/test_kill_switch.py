"""A life's kill switch, thrown from another process."""

import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.contracts.errors import ConfigError
from libs.engine.worker.pool_source import mark_pool_use
from libs.runtime.kill_switch import pull, switches, take

LIFE = "ab" * 16
ARMS = "import sys, time; from pathlib import Path; from libs.runtime.kill_switch import arm"
CODE = f"{ARMS}; arm(Path(sys.argv[1]), {LIFE!r}); print(flush=True); time.sleep(60)"


@pytest.fixture
def armed(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has armed its switch in `tmp_path`."""
    with subprocess.Popen([sys.executable, "-c", CODE, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"\n"
        yield child
        child.kill()


def test_a_stopped_process_ends_by_its_switch(tmp_path: Path, armed: subprocess.Popen[bytes]) -> None:
    """It need not run for that, and its end is seen at the switch."""
    (path,) = switches(tmp_path).values()
    fd = take(path)
    assert fd is not None
    ended = select.poll()
    ended.register(fd, 0)
    armed.send_signal(signal.SIGSTOP)
    assert not ended.poll(0)

    pull(fd)

    assert ended.poll(10_000)
    assert armed.wait() == -signal.SIGKILL
    pull(fd)
    assert take(path) is None


def test_the_end_of_a_process_is_seen_without_pulling(tmp_path: Path, armed: subprocess.Popen[bytes]) -> None:
    """However it ended."""
    fd = take(switches(tmp_path)[LIFE])
    assert fd is not None
    ended = select.poll()
    ended.register(fd, 0)

    armed.kill()

    assert ended.poll(10_000)


def test_a_switch_that_is_not_armed_yet_has_no_name(tmp_path: Path) -> None:
    """Nobody takes one that would not work."""
    (tmp_path / f".{LIFE}").touch()

    assert switches(tmp_path) == {}
    assert take(tmp_path / f"{LIFE}.switch") is None


def test_a_worker_makes_its_switch_beside_a_pool_that_it_finds_by_a_path(tmp_path: Path) -> None:
    """Where that cannot be, it says so and does not start."""
    code = "import sys; from pathlib import Path; from libs.engine.worker.pool_source import mark_pool_use"
    code += f"; mark_pool_use(Path(sys.argv[1]), {LIFE!r}); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "kv")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"\n"
        assert set(switches(tmp_path)) == {LIFE}
        child.kill()

    with pytest.raises(ConfigError, match="kill switch"):
        mark_pool_use(tmp_path / "none" / "kv", LIFE)
