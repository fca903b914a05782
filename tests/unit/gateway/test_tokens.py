"""/tokenize, /detokenize, /tokenizer_info and /version: in vLLM's shapes, with a tokenizer played behind."""

from typing import Any

import pytest

from libs.contracts import codec, flow
from libs.contracts.errors import InvalidRequest, WireError
from libs.contracts.messages import NotTokenized, TokenIds, TokenizeQuery
from tests.unit.gateway.backend import EOS, MODEL
from tests.unit.gateway.conftest import MAX_MODEL_LEN, Gateway


async def tokenizer(gateway: Gateway, reply: TokenIds | NotTokenized) -> list[TokenizeQuery]:
    """What it is asked."""
    asked: list[TokenizeQuery] = []

    async def answer(payload: bytes, traceparent: str) -> bytes:
        asked.append(codec.decode(TokenizeQuery, payload))
        return codec.encode_in("TokenizeReply", reply)

    await gateway.bus.serve(flow.tokenize_subject(MODEL), answer)
    return asked


async def test_a_prompt_becomes_ids(gateway: Gateway) -> None:
    """Asked of a tokenizer, with its special tokens or without."""
    asked = await tokenizer(gateway, TokenIds((5, 6)))

    whole = await gateway.call("/tokenize", {"prompt": "hi"}).json()
    bare = await gateway.call("/tokenize", {"prompt": "hi", "add_special_tokens": False}).json()

    assert whole == bare == {"count": 2, "max_model_len": MAX_MODEL_LEN, "tokens": [5, 6], "token_strs": None}
    assert [(query.prompt.text, query.add_special_tokens) for query in asked] == [("hi", True), ("hi", False)]


async def test_messages_become_the_ids_of_a_chat(gateway: Gateway) -> None:
    """As a chat request would send them."""
    asked = await tokenizer(gateway, TokenIds((5,)))

    call = gateway.call("/tokenize", {"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": True})

    assert (await call.json())["count"] == 1
    assert asked[0].prompt.kind == "chat" and b'"hi"' in asked[0].prompt.messages_json


async def test_a_chat_to_tokenize_ends_as_its_client_wants(gateway: Gateway) -> None:
    """By the same fields as a request."""
    asked = await tokenizer(gateway, TokenIds((5,)))
    messages = [{"role": "assistant", "content": "hi"}]
    fields = {"continue_final_message": True, "chat_template_kwargs": {"x": 1}}

    await gateway.call("/tokenize", {"messages": messages, **fields}).json()

    prompt = asked[0].prompt
    assert (prompt.has_no_turn, prompt.goes_on, prompt.arguments_json) == (True, True, b'{"x":1}')


async def test_ids_become_text(gateway: Gateway) -> None:
    """Control tokens included; bytes that are no UTF-8 are replaced."""
    answer = await gateway.call("/detokenize", {"tokens": [*"hé".encode(), EOS, 0xC3]}).json()

    assert answer == {"prompt": "hé<end>\ufffd"}


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("/tokenize", {}, "invalid_request", "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "invalid_request", "prompt"),
        ("/tokenize", {"prompt": 5}, "invalid_request", "prompt"),
        ("/tokenize", {"prompt": "a", "model": "other"}, "model_not_found", "model"),
        ("/tokenize", {"prompt": "a", "return_token_strs": True}, "invalid_request", "return_token_strs"),
        ("/tokenize", {"prompt": "a", "chat_template": "{{ 1 }}"}, "invalid_request", "chat_template"),
        ("/tokenize", {"prompt": "a"}, "unavailable", None),
        ("/detokenize", {}, "invalid_request", "tokens"),
        ("/detokenize", {"tokens": [-1]}, "invalid_request", "tokens"),
        ("/detokenize", {"tokens": [EOS + 1]}, "invalid_request", "tokens"),
        ("/detokenize", {"tokens": [1] * (MAX_MODEL_LEN + 1)}, "invalid_request", "tokens"),
        ("/detokenize", {"tokens": [1], "model": "other"}, "model_not_found", "model"),
    ],
)
async def test_what_cannot_be_done_names_its_field(
    gateway: Gateway, path: str, body: dict[str, Any], code: str, param: str | None
) -> None:
    """A 4xx, or 503 while no tokenizer answers."""
    call = gateway.call(path, body)

    error = (await call.json())["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert call.status == (503 if code == "unavailable" else 404 if code == "model_not_found" else 400)


async def test_the_tokenizers_error_is_the_clients(gateway: Gateway) -> None:
    """As it would be for a request."""
    await tokenizer(gateway, NotTokenized(WireError.of(InvalidRequest("no chat template", param="messages"))))

    call = gateway.call("/tokenize", {"messages": [{"role": "user", "content": "x"}]})

    assert (await call.json())["error"]["param"] == "messages" and call.status == 400


async def test_clients_that_tokenize_by_themselves_are_told_what_they_need(gateway: Gateway) -> None:
    """lm-eval reads eos_token; the version is the product's."""
    info = await gateway.call("/tokenizer_info", method="GET").json()
    version = await gateway.call("/version", method="GET").json()

    assert (info["eos_token"], info["bos_token"], info["model_max_length"]) == ("<eos>", None, MAX_MODEL_LEN)
    assert set(version) == {"version"}
