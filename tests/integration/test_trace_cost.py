"""Tracing is cheap enough never to be switched off."""

import asyncio
import subprocess
import sys

import pytest

GATEWAY_S = 128 * 0.0005  # of CPU that a gateway alone spends on a stream of 128 tokens
PROGRAM = "import asyncio; from bench.trace_cost import cost_s; print(asyncio.run(cost_s(3, exported={exported})))"


@pytest.mark.parametrize("exported", [False, True])
async def test_tracing_everything_costs_less_than_two_percent_of_a_requests_cpu_time(exported: bool) -> None:
    """Of its gateway's alone, of which all services together have many times as much; 128 tokens, eight at once.

    Counted in process with all threads, against no tracing: every record written and, exported, every span sent. A
    process has one SDK, so each has its own.
    """
    command = (sys.executable, "-c", PROGRAM.format(exported=exported))
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()

    assert process.returncode == 0
    assert float(output) < 0.02 * GATEWAY_S
