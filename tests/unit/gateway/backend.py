"""Plays tokenizer, scheduler and worker towards a gateway, over any bus; the test says what they do and when."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from libs.contracts import codec, flow
from libs.contracts.errors import WireError
from libs.contracts.messages import (
    Accepted,
    CellRecord,
    CellStatus,
    ControlMessage,
    Done,
    Failed,
    Finished,
    FrameRow,
    Known,
    PromptScores,
    Rejected,
    RepliesMessage,
    Request,
    Resend,
    Resent,
    Scored,
    ScoresQuery,
    StatusQuery,
    TokenFrame,
)
from libs.runtime.bus import Bus

MODEL, CELL, GATEWAY, TERM = "bytes", "c0", "gateway-1", 3
EOS = 256
PROMPT_IDS = (80, 81, 82)
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


C = TypeVar("C", bound=ControlMessage)


class ByteTokenizer:
    """Each byte is its own token; id 256 is a control token."""

    vocab_size = EOS + 1

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < EOS else b"<end>"

    def is_special(self, token_id: int) -> bool:
        return token_id == EOS


def cell_record(*, max_prompt_tokens: int = 1024) -> CellRecord:
    return CellRecord(MODEL, CELL, TERM, "scheduler-1", "127.0.0.1:1", 16, "digest", max_prompt_tokens)


def cell_status(*workers: str) -> CellStatus:
    return CellStatus(CELL, MODEL, TERM, workers, 8, 8, 0, 0, 0, 16, 0, 0)


def row(request_id: str, position: int, ids: Sequence[int], end: str = "", **fields: object) -> FrameRow:
    values: dict[str, object] = {"epoch": 1, "choice": 0, "logprobs": (), "cached_tokens": 0, "traceparent": ""}
    return FrameRow(request_id=request_id, position=position, ids=tuple(ids), end=end, **values | fields)  # type: ignore[arg-type]


def frame(*rows: FrameRow) -> TokenFrame:
    return TokenFrame(CELL, TERM, "i" * 32, 1, 0, rows)


class Backend:
    """Keeps what the gateway said in `control`; `log` holds what Resend is answered from."""

    def __init__(self, bus: Bus, gateway: str = GATEWAY, *, term: int = TERM) -> None:
        self._bus = bus
        self.term = term
        self._gateway = gateway
        self.control: asyncio.Queue[ControlMessage] = asyncio.Queue()
        self.traces: set[str] = set()  # under which it spoke
        self.log: dict[str, tuple[tuple[int, ...], str]] = {}
        self.scores: dict[str, PromptScores] = {}  # what ScoresQuery is answered with
        self.workers: tuple[str, ...] = ("decode-1",)

    async def start(self) -> None:
        await self._bus.serve(flow.control_subject(CELL), self._on_control)

    async def accept(self, request: Request) -> bool:
        """Whether the gateway still holds the request."""
        ids = PROMPT_IDS if request.echo_ids else ()
        return await self.reply(Accepted(request.request_id, 1, CELL, len(PROMPT_IDS), ids))

    async def reject(self, request: Request, error: WireError) -> None:
        await self.reply(Rejected(request.request_id, 1, error))

    async def fail(self, request: Request, error: WireError) -> None:
        await self.reply(Failed(request.request_id, 1, error, self.term, CELL))

    async def finished(self, request: Request, total: int, reason: str) -> bool:
        return await self.reply(Finished(request.request_id, 1, 0, total, reason, self.term, CELL))

    async def tokens(
        self, request: Request, position: int, ids: Sequence[int], end: str = "", **fields: object
    ) -> None:
        await self.frame(row(request.request_id, position, ids, end, **fields))

    async def frame(self, *rows: FrameRow) -> None:
        await self._bus.publish(flow.tokens_subject(self._gateway), codec.encode(frame(*rows)))

    async def reply(self, message: RepliesMessage) -> bool:
        payload = codec.encode_in("RepliesMessage", message)
        return codec.decode(
            Known, await self._bus.request(flow.replies_subject(self._gateway), payload, timeout_s=2)
        ).live

    async def told(self, kind: type[C]) -> C:
        """The next control message, which must be of this kind; questions for tokens are passed over."""
        while isinstance(message := await asyncio.wait_for(self.control.get(), 5), Resend):
            pass
        assert isinstance(message, kind), message
        return message

    async def _on_control(self, payload: bytes, traceparent: str) -> bytes:
        message: ControlMessage = codec.decode_in("ControlMessage", payload)
        if not isinstance(message, StatusQuery):
            self.traces.add(traceparent)
        match message:
            case StatusQuery():
                return codec.encode(cell_status(*self.workers))
            case ScoresQuery():
                known = self.scores.get(message.request_id)
                return codec.encode(Scored(True, (known,) if known and known.first == message.first else ()))
            case Resend():
                self.control.put_nowait(message)
                ids, end = self.log.get(message.request_id, ((), ""))
                return codec.encode(Resent(True, message.position, ids[message.position :], (), end))
            case _:
                self.control.put_nowait(message)
                return codec.encode(Done(True))
