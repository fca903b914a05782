"""Answers `status`: every service says who it is and whether it can serve."""

from collections.abc import Callable

from libs.contracts import codec, flow
from libs.contracts.messages import ServiceStatus
from libs.runtime.bus import Bus, Subscription


async def serve_status(bus: Bus, status: Callable[[], ServiceStatus]) -> Subscription:
    """Answer each question on the status subject with the status of that moment."""

    async def answer(payload: bytes, traceparent: str) -> bytes:
        return codec.encode(status())

    return await bus.serve(flow.STATUS_SUBJECT, answer)
