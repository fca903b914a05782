"""Asks the workers of a running stack where the time of their steps goes."""

from typing import Final

from deploy.local.run_dir import State
from deploy.local.stack import SUPERVISOR
from libs.contracts import codec, flow
from libs.contracts.messages import ProfileQuery, WorkerProfile
from libs.runtime.bus import Bus

PATIENCE_S: Final = 3.0  # a step may last that long; who asks beside us is asked for first
WORKERS: Final = ("prefill_worker", "decode_worker")


async def ask_profiles(state: State, duration_s: float) -> list[WorkerProfile]:
    """One of each worker that answers, by name. Raises Unavailable when the stack's broker does not."""
    workers = sum(child.pid != 0 and child.name.startswith(WORKERS) for child in state.children)
    query = codec.encode(ProfileQuery(round(duration_s * 1000)))
    async with Bus.connect(state.nats_url, service=SUPERVISOR, user=SUPERVISOR, password=state.nats_password) as bus:
        payloads = await bus.scatter(flow.PROFILE_SUBJECT, query, answers=workers, within_s=duration_s + PATIENCE_S)
    return sorted((codec.decode(WorkerProfile, payload) for payload in payloads), key=lambda profile: profile.worker)
