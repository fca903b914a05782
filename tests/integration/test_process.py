"""A process's life: how it ends, and what it says then."""

import asyncio
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

SOON_S = 10.0
WAITING = """
import asyncio
from libs.runtime.process import run, stop_signal

async def main():
    async with stop_signal() as stop:
        print("up", flush=True)
        await stop.wait()
        print("stopping", flush=True)
        if {lingers}:
            await asyncio.Event().wait()

run(main)
"""
FAILING = """
from libs.contracts import errors
from libs.runtime.process import run

async def main():
    raise errors.{kind}("no\\n" "good")

run(main)
"""


async def start(program: str) -> asyncio.subprocess.Process:
    pipe = subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=pipe, stderr=pipe)


async def said(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await asyncio.wait_for(process.stdout.readline(), SOON_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_one_signal_is_a_request_to_stop(number: int) -> None:
    """The main finishes what it has and the process exits cleanly."""
    process = await start(WAITING.format(lingers=False))
    assert await said(process) == b"up\n"

    process.send_signal(number)

    assert await said(process) == b"stopping\n"
    assert await asyncio.wait_for(process.communicate(), SOON_S) == (b"", b"")
    assert process.returncode == 0


async def test_a_second_signal_ends_the_process_at_once() -> None:
    """Whatever it still waits for."""
    process = await start(WAITING.format(lingers=True))
    await said(process)
    process.send_signal(signal.SIGTERM)
    assert await said(process) == b"stopping\n"

    process.send_signal(signal.SIGTERM)

    await asyncio.wait_for(process.communicate(), SOON_S)
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("kind", "code", "exit_code"), [("ConfigError", "config", 2), ("Unavailable", "unavailable", 1)]
)
async def test_a_typed_error_is_one_line_and_an_exit_code(kind: str, code: str, exit_code: int) -> None:
    """No traceback; 2 says that starting again does not help."""
    process = await start(FAILING.format(kind=kind))

    _, errors = await asyncio.wait_for(process.communicate(), SOON_S)

    assert (process.returncode, errors) == (exit_code, f"{code}: no good\n".encode())
