"""Which ids a prompt would be, asked by a gateway of two tokenizers over a real broker."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from libs.contracts import codec, flow
from libs.contracts.messages import NotTokenized, Prompt, TokenIds, TokenizeQuery
from libs.runtime.bus import Bus, NoResponder
from libs.text.tokenizer import Tokenizer
from tests.integration.servers import NatsServer
from tests.integration.tokenizer_stage import MODEL, SOON_S, tokenizer
from tests.unit.text.small_model import small_tokenizer_json

pytestmark = pytest.mark.integration


async def request(gateway: Bus, payload: bytes) -> bytes:
    """The answer, as soon as there is a tokenizer."""
    async with asyncio.timeout(SOON_S):
        while True:
            with suppress(NoResponder):
                return await gateway.request(flow.tokenize_subject(MODEL), payload, timeout_s=SOON_S)
            await asyncio.sleep(0.02)


async def test_a_gateway_is_told_which_ids_a_prompt_would_be(own_nats_server: NatsServer, tmp_path: Path) -> None:
    """One of the model's tokenizers answers, with ids or with the error that a request would get."""
    (tmp_path / "tokenizer.json").write_text(small_tokenizer_json())
    encode = Tokenizer.from_dir(tmp_path).encode

    async def ask(query: TokenizeQuery) -> TokenIds | NotTokenized:
        answer = await request(gateway, codec.encode(query))
        reply: TokenIds | NotTokenized = codec.decode_in("TokenizeReply", answer)
        return reply

    async with own_nats_server.connect("gateway") as gateway, own_nats_server.connect("scheduler") as scheduler:
        await scheduler.declare_work_queue(flow.REQUESTS_STREAM, ["requests.*"], max_messages=100)
        await scheduler.declare_cells()
        async with tokenizer(own_nats_server, tmp_path), tokenizer(own_nats_server, tmp_path):
            for add in (True, False):
                ids = TokenIds(tuple(encode("Hello, all!", add_special_tokens=add)))
                assert await ask(TokenizeQuery(MODEL, Prompt(text="Hello, all!"), add)) == ids
            too_long = await ask(TokenizeQuery(MODEL, Prompt(text="x" * 100_000), True))

    assert isinstance(too_long, NotTokenized) and too_long.error.code == "context_length_exceeded"
