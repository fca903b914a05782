"""POST /tokenize and /detokenize, GET /tokenizer_info: from text to ids and back, in vLLM's shapes."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from libs.contracts import codec, flow
from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import NotTokenized, Prompt, TokenizeQuery
from libs.runtime.bus import Bus
from libs.text.detokenize import Detokenizer
from services.gateway import schemas
from services.gateway.body import read_body
from services.gateway.catalog import Catalog
from services.gateway.errors_http import Refused
from services.gateway.limits import Limits, token_ids
from services.gateway.prompt_fields import chat_prompt, ended

ANSWER_TIMEOUT_S: Final = 10.0  # of a tokenizer, for the longest of prompts

# What vLLM's clients may ask for that this server does not do another way.
NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "chat_template": (),
    "return_token_strs": (False,),
    "tools": ([],),
}


class TokenizeBody(msgspec.Struct):
    """Either a prompt or the messages of a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: list[schemas.Message] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, msgspec.Raw] | None = None
    chat_template: msgspec.Raw = schemas.ABSENT
    return_token_strs: msgspec.Raw = schemas.ABSENT
    tools: msgspec.Raw = schemas.ABSENT


class DetokenizeBody(msgspec.Struct):
    tokens: list[int]
    model: str | None = None


class TokenizerClient:
    """Asks a tokenizer, which alone turns text into ids: so the ids are those that a request would have."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def ids(self, model: str, prompt: Prompt, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Raises what a request with this prompt would fail with; Unavailable when no tokenizer answers."""
        query = codec.encode(TokenizeQuery(model, prompt, add_special_tokens))
        if len(query) > self._bus.max_payload_bytes:
            raise Refused("body_too_large", "the prompt is too large to be sent on")
        subject = flow.tokenize_subject(model)
        answer = await self._bus.request(subject, query, timeout_s=ANSWER_TIMEOUT_S)
        reply = codec.decode_in("TokenizeReply", answer)
        if isinstance(reply, NotTokenized):
            raise reply.error.to_exception()
        return tuple(reply.ids)


def prompt_to_tokenize(body: TokenizeBody) -> Prompt:
    """Raises InvalidRequest, among others unless exactly one of prompt and messages is there."""
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequest("either prompt or messages is needed", param="prompt")
    if body.messages is None:
        return Prompt(text=body.prompt or "", kind="text")
    chat = chat_prompt(body.messages)
    return ended(chat, body.add_generation_prompt, body.continue_final_message, body.chat_template_kwargs)


class Tokens:
    """The three routes; who names no model means the first."""

    def __init__(self, client: TokenizerClient, catalog: Catalog, *, max_body_bytes: int) -> None:
        self._client, self._catalog = client, catalog
        self._max_body_bytes = max_body_bytes

    async def tokenize(self, request: Request) -> Response:
        """Raises HeadraceError."""
        body = schemas.decode(TokenizeBody, await self._body(request))
        limits = self._catalog.model(body.model).limits
        for name, neutral in NEUTRAL.items():
            if not schemas.is_neutral(getattr(body, name), neutral):
                raise InvalidRequest(f"{name} with this value is not supported", param=name)
        prompt = prompt_to_tokenize(body)
        ids = await self._client.ids(limits.model, prompt, add_special_tokens=body.add_special_tokens is not False)
        return _json({"count": len(ids), "max_model_len": limits.max_model_len, "tokens": ids, "token_strs": None})

    async def detokenize(self, request: Request) -> Response:
        """Control tokens are spelled out. Raises HeadraceError."""
        body = schemas.decode(DetokenizeBody, await self._body(request))
        model = self._catalog.model(body.model)
        limits = model.limits
        if len(body.tokens) > limits.max_model_len:
            raise InvalidRequest(f"at most {limits.max_model_len} tokens are allowed", param="tokens")
        text = Detokenizer(model.tokenizer, skip_special_tokens=False)
        return _json({"prompt": text.push(token_ids("tokens", body.tokens, limits)) + text.finish()})

    async def info(self, request: Request) -> Response:
        """Of the model that the query names. Raises ModelNotFound."""
        return _json(self._catalog.model(request.query_params.get("model")).info)

    async def _body(self, request: Request) -> bytes:
        return await read_body(request.scope, request.receive, max_bytes=self._max_body_bytes)


def tokenizer_info(special_tokens: Mapping[str, str], chat_template: str | None, limits: Limits) -> dict[str, object]:
    """What a client needs that formats and counts prompts by itself."""
    roles = {role: special_tokens.get(role) for role in ("bos_token", "eos_token", "pad_token", "unk_token")}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",  # what reads a tokenizer.json
        **roles,
        "model_max_length": limits.max_model_len,
        "vocab_size": limits.vocab_size,
        "chat_template": chat_template,
    }


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
