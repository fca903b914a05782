"""Brings chat messages of a request into the one form that chat templates expect."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from libs.contracts.errors import InvalidRequest

PASSED_ON: Final = ("name", "tool_call_id", "reasoning_content")


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages with string content, and tool calls whose arguments are objects.

    Absent content is the empty string. Text parts are joined by newlines. Arguments that are not JSON (a call that
    was cut short in an earlier turn) stay the string they are.

    Raises: InvalidRequest, param "messages", when there is none, a role is missing, or a part is not text.
    """
    if not messages:
        raise InvalidRequest("at least one message is needed", param="messages")
    return [_plain_message(index, message) for index, message in enumerate(messages)]


def _plain_message(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest(f"messages[{index}] has no role", param="messages")
    plain: dict[str, Any] = {"role": role, "content": _plain_content(index, message.get("content"))}
    plain |= {name: message[name] for name in PASSED_ON if message.get(name) is not None}
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = [_plain_call(index, call) for call in calls]
    return plain


def _plain_content(index: int, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise InvalidRequest(f"messages[{index}].content is neither text nor a list of parts", param="messages")
    texts: list[str] = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise InvalidRequest(f"messages[{index}].content holds a part that is not text", param="messages")
        texts.append(text)
    return "\n".join(texts)


def _plain_call(index: int, call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidRequest(f"messages[{index}].tool_calls holds an entry without a function", param="messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    return {**call, "function": {**function, "arguments": {} if arguments is None else arguments}}


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments
