"""A GenerateRequest as the body that POST would have: one function then checks both. Pure."""

from dataclasses import fields

import msgspec

from libs.contracts.errors import DeadlineExceeded, InvalidRequest
from libs.contracts.messages import ChatMessage, GenerateRequest, RawPrompt, StructuredOutputs, TokenizeRequest
from services.gateway import schemas
from services.gateway.tokens import TokenizeBody
from services.gateway.validate import MAX_TIMEOUT_S, Kind

PROMPTS = ("prompt", "prompt_ids", "prompts", "messages")


def http_body(request: GenerateRequest, *, stream: bool, left_s: float | None) -> tuple[Kind, bytes]:
    """Which endpoint's body, and the body. `left_s` is until the call's deadline; None: it has none.

    Raises InvalidRequest, DeadlineExceeded.
    """
    body = _given(request)
    kind = _say_prompt(body, request)
    if "logit_bias" in body:
        body["logit_bias"] = {str(one.token_id): one.bias for one in request.logit_bias}
    if request.structured_outputs is not None:
        body["structured_outputs"] = _given(request.structured_outputs)
    if "messages" in body and (tops := body.pop("logprobs", None)) is not None:
        body["logprobs"], body["top_logprobs"] = True, tops
    if "chat_template_kwargs" in body:
        body["chat_template_kwargs"] = template_arguments(request.chat_template_kwargs)
    if left_s is not None:
        if left_s <= 0:
            raise DeadlineExceeded("the call's deadline has passed")
        body["timeout"] = min(left_s, MAX_TIMEOUT_S)
    if stream:
        body["stream"] = True
    return kind, msgspec.json.encode(body)


def _say_prompt(body: dict[str, object], request: GenerateRequest) -> Kind:
    """Put the request's prompt into the body in the words of HTTP; which endpoint takes it."""
    prompts = [name for name in PROMPTS if name in body]
    if len(prompts) != 1:
        raise InvalidRequest("exactly one of prompt, prompt_ids, prompts and messages is needed", param="prompt")
    if "messages" in body:
        return Kind.CHAT
    if "prompt_ids" in body:
        body["prompt"] = body.pop("prompt_ids")
    if body.pop("prompts", None):
        body["prompt"] = [_raw(prompt) for prompt in request.prompts]
    return Kind.COMPLETION


def _given(message: GenerateRequest | StructuredOutputs) -> dict[str, object]:
    """The fields that are set."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    return {name: value for name, value in values.items() if value is not None and value != ()}


def template_arguments(text: str | None) -> dict[str, msgspec.Raw] | None:
    """What a text of JSON says of a template's variables. Raises InvalidRequest unless it is one object."""
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest("an object of JSON is needed", param="chat_template_kwargs") from error


def _raw(prompt: RawPrompt) -> str | tuple[int, ...]:
    if (prompt.text is None) == (not prompt.ids):
        raise InvalidRequest("each of prompts needs either text or ids", param="prompt")
    return prompt.ids if prompt.text is None else prompt.text


def tokenize_body(request: TokenizeRequest) -> TokenizeBody:
    """As POST /tokenize has it. Raises InvalidRequest."""
    return TokenizeBody(
        prompt=request.prompt,
        messages=[_message(message) for message in request.messages] or None,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        chat_template_kwargs=template_arguments(request.chat_template_kwargs),
    )


def _message(message: ChatMessage) -> schemas.Message:
    return schemas.Message(role=message.role, content=message.content)
