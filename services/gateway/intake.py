"""Everything that comes into the gateway from another service: token frames, and what is said about its requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.contracts import codec, flow
from libs.contracts.messages import TokenFrame
from libs.runtime.bus import Bus
from libs.runtime.failpoints import failpoint_bytes
from services.gateway.hub import Hub


@asynccontextmanager
async def listening(bus: Bus, gateway: str, hub: Hub) -> AsyncIterator[None]:
    """Feed the hub until the block ends. Frames are handled in the bus callback itself, one after the other."""

    def on_tokens(payload: bytes, traceparent: str) -> None:
        hub.on_frame(codec.decode(TokenFrame, failpoint_bytes("gateway.frame.in", payload)))

    async def on_reply(payload: bytes, traceparent: str) -> bytes:
        return codec.encode(hub.on_reply(codec.decode_in("RepliesMessage", payload)))

    tokens = await bus.subscribe(flow.tokens_subject(gateway), on_tokens)
    replies = await bus.serve(flow.replies_subject(gateway), on_reply)
    try:
        yield
    finally:
        await tokens.close()
        await replies.close()
