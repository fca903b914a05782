"""What a supervisor writes down of a run, for tests that have none."""

from typing import Any

import msgspec

from deploy.local.run_dir import State

STATE = State(
    pid=1,
    born=1,
    phase="ready",
    base_url="http://127.0.0.1:8000/v1",
    model="m",
    needs_key=False,
    kv_blocks=3072,
    block_tokens=16,
    pool_bytes=int(1.1 * 2**30),
    nats_url="",
    nats_password="secret",
    children=(),
)


def run_state(**changes: Any) -> State:
    """A stack that is up, but for what the test says."""
    return msgspec.structs.replace(STATE, **changes)
