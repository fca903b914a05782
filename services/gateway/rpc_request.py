"""A GenerateRequest as the body that POST would have: one function then checks both. Pure."""

from dataclasses import fields

import msgspec

from libs.contracts.errors import DeadlineExceeded, InvalidRequest
from libs.contracts.messages import ChatMessage, GenerateRequest, StructuredOutputs, TokenizeRequest
from services.gateway import schemas
from services.gateway.validate import MAX_TIMEOUT_S, Kind

PROMPTS = ("prompt", "prompt_ids", "messages")


def http_body(request: GenerateRequest, *, stream: bool, left_s: float | None) -> tuple[Kind, bytes]:
    """Which endpoint's body, and the body. `left_s` is until the call's deadline; None: it has none.

    Raises InvalidRequest, DeadlineExceeded.
    """
    body = _given(request)
    prompts = [name for name in PROMPTS if name in body]
    if len(prompts) != 1:
        raise InvalidRequest("exactly one of prompt, prompt_ids and messages is needed", param="prompt")
    if "logit_bias" in body:
        body["logit_bias"] = {str(one.token_id): one.bias for one in request.logit_bias}
    if request.structured_outputs is not None:
        body["structured_outputs"] = _given(request.structured_outputs)
    if "messages" in body and (tops := body.pop("logprobs", None)) is not None:
        body["logprobs"], body["top_logprobs"] = True, tops
    if "prompt_ids" in body:
        body["prompt"] = body.pop("prompt_ids")
    if left_s is not None:
        if left_s <= 0:
            raise DeadlineExceeded("the call's deadline has passed")
        body["timeout"] = min(left_s, MAX_TIMEOUT_S)
    if stream:
        body["stream"] = True
    kind = Kind.CHAT if "messages" in body else Kind.COMPLETION
    return kind, msgspec.json.encode(body)


def _given(message: GenerateRequest | StructuredOutputs) -> dict[str, object]:
    """The fields that are set."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    return {name: value for name, value in values.items() if value is not None and value != ()}


def tokenize_messages(request: TokenizeRequest) -> list[schemas.Message] | None:
    """None where there are none."""
    return [_message(message) for message in request.messages] or None


def _message(message: ChatMessage) -> schemas.Message:
    return schemas.Message(role=message.role, content=message.content)
