"""Response objects of the OpenAI API, whole or as chunks.

A chunk is written for each token, so everything but its text is laid out as bytes when the response begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from services.gateway import sse
from services.gateway.validate import Kind


@dataclass(frozen=True, slots=True)
class Head:
    """What all objects of one response share."""

    kind: Kind
    request_id: str
    model: str
    created_unix_s: int
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def to_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of one choice; `finish_reason` is set in the last one."""

    index: int
    text: str
    token_ids: Sequence[int]
    finish_reason: str | None


def whole(head: Head, choices: Sequence[Delta], usage: Usage, prompt_ids: Sequence[int]) -> bytes:
    """The one object of a response that is not streamed; each choice's delta holds all of it."""
    chat = head.kind is Kind.CHAT
    body: dict[str, Any] = {
        "id": head.request_id,
        "object": "chat.completion" if chat else "text_completion",
        "created": head.created_unix_s,
        "model": head.model,
        "choices": [_choice(head, choice, prompt_ids) for choice in choices],
        "usage": usage.to_json(),
    }
    if chat and head.return_token_ids:
        body["prompt_token_ids"] = list(prompt_ids)
    return msgspec.json.encode(body)


def _choice(head: Head, choice: Delta, prompt_ids: Sequence[int]) -> dict[str, Any]:
    fields: dict[str, Any] = {"index": choice.index}
    if head.kind is Kind.CHAT:
        fields["message"] = {"role": "assistant", "content": choice.text, "refusal": None}
    else:
        fields["text"] = choice.text
    fields |= {"logprobs": None, "finish_reason": choice.finish_reason}
    if head.return_token_ids:
        fields["token_ids"] = list(choice.token_ids)
        if head.kind is Kind.COMPLETION:
            fields["prompt_token_ids"] = list(prompt_ids)
    return fields


class ChunkWriter:
    """Writes the events of one streamed response: first, one per delta, usage if asked for; then sse.DONE."""

    def __init__(self, head: Head, prompt_ids: Sequence[int]) -> None:
        self._head = head
        self._chat = head.kind is Kind.CHAT
        shared = {
            "id": head.request_id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": head.created_unix_s,
            "model": head.model,
        }
        self._open = sse.PREFIX + msgspec.json.encode(shared)[:-1] + b',"choices":['
        self._text_open = b'"delta":{"content":' if self._chat else b'"text":'
        self._text_close = b"}" if self._chat else b""
        self._no_text = b'"delta":{}' if self._chat else b'"text":""'
        # The prompt's ids go out once, with the first chunk: beside the choices of a chat, inside a completion's.
        self._prompt_ids = (
            b',"prompt_token_ids":' + msgspec.json.encode(list(prompt_ids)) if head.return_token_ids else b""
        )

    def first(self, choices: int, usage: Usage) -> bytes:
        """Each choice's role: chats open with it, and no later chunk has one."""
        if not self._chat:
            return b""
        rest = self._prompt_ids + self._usage(usage)
        return b"".join(
            self._event(index, b'"delta":{"role":"assistant","content":""}', b"null", b"", rest)
            for index in range(choices)
        )

    def delta(self, delta: Delta, usage: Usage) -> bytes:
        text = self._no_text
        if delta.text:
            text = self._text_open + msgspec.json.encode(delta.text) + self._text_close
        reason = b'"' + delta.finish_reason.encode() + b'"' if delta.finish_reason else b"null"
        ids = b""
        if self._head.return_token_ids:
            ids = b',"token_ids":' + msgspec.json.encode(delta.token_ids)
            if not self._chat:
                ids, self._prompt_ids = ids + self._prompt_ids, b""
        return self._event(delta.index, text, reason, ids, self._usage(usage))

    def usage(self, usage: Usage) -> bytes:
        """The one chunk without choices; only for those who asked."""
        if not self._head.include_usage:
            return b""
        return self._open + b'],"usage":' + msgspec.json.encode(usage.to_json()) + b"}" + sse.SUFFIX

    def _usage(self, usage: Usage) -> bytes:
        if self._head.continuous_usage:
            return b',"usage":' + msgspec.json.encode(usage.to_json())
        return b',"usage":null' if self._head.include_usage else b""

    def _event(self, index: int, text: bytes, reason: bytes, in_choice: bytes, beside: bytes) -> bytes:
        return b'%b{"index":%d,%b,"logprobs":null,"finish_reason":%b%b}]%b}\n\n' % (
            self._open,
            index,
            text,
            reason,
            in_choice,
            beside,
        )
