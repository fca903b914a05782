"""What Server-Timing tells."""

from libs.contracts.trace_records import Served
from services.gateway.timing import server_timing
from tests.unit.gateway.conftest import Gateway

MS = 1_000_000


def test_phases_stand_end_to_end_and_only_when_they_are_over() -> None:
    """A stream's head goes out before its tokens are; a frame may overtake the tokenizer's word."""
    served = Served("r", "", "m", "chat", True, arrived_ns=5 * MS, queued_ns=7 * MS, first_row_ns=30 * MS)
    assert server_timing(served, 10 * MS) == (b"server-timing", b"receive;dur=2.0, tokenize;dur=3.0, prefill;dur=20.0")
    served.told_ns = 31 * MS
    assert server_timing(served, 0)[1] == b"receive;dur=2.0, prefill;dur=23.0, decode;dur=1.0"


async def test_each_answer_tells_where_its_time_went(gateway: Gateway) -> None:
    """Streamed without its decoding, whole with it."""
    for stream in (True, False):
        call = gateway.complete(stream=stream, max_tokens=2)
        request = await gateway.taken()
        assert await gateway.backend.accept(request)
        await gateway.backend.tokens(request, 0, [5])
        await gateway.backend.tokens(request, 1, [6], "length")
        await call.whole()
        names = [part.partition(";")[0].strip() for part in call.headers["server-timing"].split(",")]
        assert names == ["receive", "tokenize", "prefill", "decode"][: 3 if stream else 4]
