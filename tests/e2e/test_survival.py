"""Streams go on with the same tokens when a process of the pipeline is killed in the middle of them.

One random moment per fault; `make survival` takes three of every process in both roles, and writes docs/survival.md.
"""

import os

import pytest

from tests.e2e.conftest import StackFactory
from tests.e2e.survival import disturbed, stall_s, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

MOMENTS = int(os.environ.get("HR_SURVIVAL_MOMENTS", "1"))
LONGEST_STALL_S = 3.0
SERVICES = ("decode_worker", "prefill_worker", "tokenizer", "scheduler", "nats", "valkey")


@pytest.mark.parametrize("role", [pytest.param("hybrid", marks=pytest.mark.whole), "disaggregated"])
async def test_streams_survive_the_death_of_any_process(stack: StackFactory, role: str) -> None:
    """Ids, text, usage and reasons of the undisturbed run; nobody waits for long, and no block is lost."""
    running = stack(role=role, dtype="float32", decode=2)
    load, answers = await undisturbed(running)
    stalls = {}
    for service in SERVICES:
        for moment in range(MOMENTS):
            history = await disturbed(running, service, load, answers)
            stalls[f"{service} {moment}"] = round(stall_s(history), 2)
    assert max(stalls.values()) <= LONGEST_STALL_S, stalls
