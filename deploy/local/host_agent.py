"""The host agent: on a scheduler's word it kills one life of a worker, and says so once that process is gone."""

import signal
from collections.abc import Callable, Sequence

from deploy.local.fleet import Life
from libs.contracts import codec, flow
from libs.contracts.messages import Gone, Incarnations, Kill
from libs.runtime.bus import Bus, Subscription
from libs.runtime.failpoints import failpoint


async def serve_host_agent(bus: Bus, host: str, workers: Callable[[], Sequence[Life]]) -> Subscription:
    """Answer on this host's subject for the workers that run at that moment."""

    async def answer(payload: bytes, traceparent: str) -> bytes:
        return await answer_host(payload, workers())

    return await bus.serve(flow.host_subject(host), answer)


async def answer_host(payload: bytes, workers: Sequence[Life]) -> bytes:
    """The answer to Kill or ListIncarnations; idempotent by incarnation. Raises MalformedMessage.

    A life that is not among `workers` is gone: the supervisor alone starts them, and forgets them only at their end.
    """
    message = codec.decode_in("HostMessage", payload)
    if not isinstance(message, Kill):
        return codec.encode_in("HostReply", Incarnations(tuple(life.incarnation for life in workers)))
    for life in workers:
        if life.incarnation == message.incarnation:
            failpoint("host.kill.received")
            life.child.signal(signal.SIGKILL)
            await life.child.wait()
            failpoint("host.kill.gone")
    return codec.encode_in("HostReply", Gone(message.incarnation))
