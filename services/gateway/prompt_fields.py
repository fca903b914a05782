"""What a body says of its prompt: the messages or texts, and how they become ids. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from libs.contracts.errors import ContextTooLong, InvalidRequest
from libs.contracts.messages import Prompt
from libs.text.chat_messages import plain_messages
from services.gateway import schemas
from services.gateway.bounds import integer
from services.gateway.json_depth import is_too_deep
from services.gateway.limits import Limits, token_ids
from services.gateway.schemas import ChatBody, CompletionBody

MAX_MESSAGES: Final = 4096
MAX_ARGUMENTS_BYTES: Final = 16 << 10
MAX_ARGUMENTS_DEPTH: Final = 16  # of objects and lists, as the body is counted
WHOLE_CONTEXT: Final = -1
RESERVED_ARGUMENTS: Final = frozenset(
    {"add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "messages"}
    | {"padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize", "tools", "truncation"}
)


def prompts_of(body: ChatBody | CompletionBody, limits: Limits) -> tuple[Prompt, ...]:
    """At least one. Raises InvalidRequest, ContextTooLong."""
    last_tokens = integer("truncate_prompt_tokens", body.truncate_prompt_tokens, 0, WHOLE_CONTEXT, limits.max_model_len)
    if last_tokens == 0 and body.truncate_prompt_tokens is not None:
        raise InvalidRequest("truncate_prompt_tokens must not be 0", param="truncate_prompt_tokens")
    if isinstance(body, ChatBody):
        chat = ended(
            chat_prompt(body.messages),
            body.add_generation_prompt,
            body.continue_final_message,
            body.chat_template_kwargs,
        )
        return (replace(chat, last_tokens=last_tokens),)
    prompts, is_bare = _several(body.prompt), body.add_special_tokens is False
    if len(prompts) * (body.n or 1) > limits.max_choices:
        raise InvalidRequest(f"at most {limits.max_choices} choices of all prompts are allowed", param="prompt")
    return tuple(
        replace(_one(prompt, limits, is_cut=last_tokens != 0), last_tokens=last_tokens, is_bare=is_bare)
        for prompt in prompts
    )


def chat_prompt(chat: Sequence[schemas.Message]) -> Prompt:
    """Raises InvalidRequest."""
    if len(chat) > MAX_MESSAGES:
        raise InvalidRequest(f"at most {MAX_MESSAGES} messages are allowed", param="messages")
    for index, message in enumerate(chat):
        if not schemas.is_neutral(message.tool_calls, ([],)):
            raise InvalidRequest(f"messages[{index}].tool_calls is not supported", param="messages")
    messages = plain_messages([_message(message) for message in chat])
    return Prompt(messages_json=msgspec.json.encode(messages), kind="chat")


def echoed_chat(body: ChatBody) -> str:
    """The beginning of the answer that the client wrote itself: the last message, where it is the assistant's."""
    (message,) = plain_messages([_message(body.messages[-1])])
    return str(message["content"]) if message["role"] == "assistant" else ""


def ended(chat: Prompt, turn: bool | None, goes_on: bool | None, arguments: dict[str, msgspec.Raw] | None) -> Prompt:
    """A chat that ends with the opening of a turn, without it, or inside its last message. Raises InvalidRequest."""
    if goes_on and turn:
        raise InvalidRequest(
            "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
        )
    has_no_turn = bool(goes_on) or turn is False
    return replace(chat, goes_on=bool(goes_on), has_no_turn=has_no_turn, arguments_json=_arguments(arguments))


def _arguments(given: dict[str, msgspec.Raw] | None) -> bytes:
    """The template's own variables; what rendering owns is refused by name."""
    if not given:
        return b""
    if clash := sorted(RESERVED_ARGUMENTS & given.keys()):
        raise InvalidRequest(f"{clash[0]} cannot be set by the request", param="chat_template_kwargs")
    text = msgspec.json.encode(given)
    if len(text) > MAX_ARGUMENTS_BYTES:
        raise InvalidRequest(f"at most {MAX_ARGUMENTS_BYTES} bytes are allowed", param="chat_template_kwargs")
    if is_too_deep(text, MAX_ARGUMENTS_DEPTH):
        raise InvalidRequest(f"at most {MAX_ARGUMENTS_DEPTH} levels are allowed", param="chat_template_kwargs")
    return text


def _message(message: schemas.Message) -> dict[str, object]:
    content: object = message.content
    if isinstance(message.content, list):
        content = [{"type": part.type, "text": part.text} for part in message.content]
    fields = {"role": message.role, "content": content, "name": message.name, "tool_call_id": message.tool_call_id}
    return {name: value for name, value in fields.items() if value is not None}


def _several(prompt: str | list[int | str | list[int]]) -> list[str | list[int]]:
    """One or more prompts, whichever of the four forms they have."""
    if isinstance(prompt, str):
        return [prompt]
    if all(isinstance(part, int) for part in prompt):
        return [prompt]  # type: ignore[list-item]  # a list of ids, maybe an empty one
    if any(isinstance(part, int) for part in prompt):
        raise InvalidRequest("prompt mixes token ids and other prompts", param="prompt")
    return prompt  # type: ignore[return-value]  # no ids in it


def _one(prompt: str | list[int], limits: Limits, *, is_cut: bool) -> Prompt:
    if not prompt:
        raise InvalidRequest("prompt is empty", param="prompt")
    if isinstance(prompt, str):
        return Prompt(text=prompt, kind="text")
    if len(prompt) >= limits.max_model_len and not is_cut:
        raise ContextTooLong(
            f"the prompt has {len(prompt)} tokens, and the context of {limits.max_model_len} tokens"
            " must hold it and at least one more",
            param="prompt",
        )
    return Prompt(ids=token_ids("prompt", prompt, limits), kind="ids")
