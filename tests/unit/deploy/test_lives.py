"""The pool holder's view of its workers."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from deploy.pool.lives import Lives

ARMS = "import sys, time; from pathlib import Path; from libs.runtime.kill_switch import arm"
CODE = f"{ARMS}; arm(Path(sys.argv[1]), sys.argv[2]); print(flush=True); time.sleep(60)"
FIRST, SECOND = "0a" * 16, "0b" * 16


def armed(folder: Path, incarnation: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", CODE, str(folder), incarnation], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"\n"
    return child


async def test_a_life_is_ended_and_told_once(tmp_path: Path) -> None:
    """`end` returns when the process is gone, and leaves the others alone."""
    ended = list[str]()
    with armed(tmp_path, FIRST) as doomed, armed(tmp_path, SECOND) as spared:
        lives = Lives(tmp_path, ended.append)
        assert set(lives.writing()) == {FIRST, SECOND}

        await lives.end(FIRST)
        await lives.end(FIRST)

        assert doomed.wait() == -signal.SIGKILL
        assert ended == [FIRST] and lives.writing() == (SECOND,)
        spared.kill()
        spared.wait()
        async with asyncio.timeout(10):
            while ended != [FIRST, SECOND]:
                await asyncio.sleep(0.01)
        lives.close()
    assert not list(tmp_path.iterdir()), "their switches are tidied away"


async def test_a_switch_of_an_earlier_holder_without_a_process_is_no_life(tmp_path: Path) -> None:
    """A holder that starts again finds what the last one left."""
    with armed(tmp_path, FIRST) as child:
        child.kill()

    assert Lives(tmp_path, lambda incarnation: None).writing() == ()
