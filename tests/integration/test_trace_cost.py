"""Tracing is cheap enough never to be switched off."""

import asyncio
import subprocess
import sys

import pytest

GATEWAY_S = 128 * 0.0005  # of CPU that a gateway alone spends on a stream of 128 tokens
SERVICES_S = 0.4  # less than all services spend on it with the default model, as `bench.trace_cost --run-dir` tells
PROGRAM = "import asyncio; from bench.trace_cost import cost_s; print(asyncio.run(cost_s(3, exported={exported})))"


@pytest.mark.parametrize(("exported", "whole_s"), [(False, GATEWAY_S), (True, SERVICES_S)])
async def test_tracing_everything_costs_less_than_two_percent_of_a_requests_cpu_time(
    exported: bool, whole_s: float
) -> None:
    """Every record written: of its gateway's alone. Every span of all services sent as well: of all services'.

    128 tokens in and out, eight at once; counted in process with all threads, against no tracing. A process has one
    SDK, so each has its own.
    """
    command = (sys.executable, "-c", PROGRAM.format(exported=exported))
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()

    assert process.returncode == 0
    assert float(output) < 0.02 * whole_s
