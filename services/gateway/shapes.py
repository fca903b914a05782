"""Response objects of the OpenAI API, whole or as chunks.

A chunk is written for each token, so everything but its text is laid out as bytes when the response begins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from services.gateway import sse
from services.gateway.logprobs import NO_ECHO, CompletionLists, Echo, chat_entries
from services.gateway.notes import Note, TokenNames
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
    names: TokenNames | None = None  # of tokens whose log-probabilities are told; None: of none
    tells_sums: bool = False  # the log-probability of each choice as a whole, too


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
    notes: Sequence[Note | None] = ()  # of the ids, where log-probabilities are wanted


@dataclass(frozen=True, slots=True)
class Source:
    """The prompt behind some choices of a response, as far as it is told."""

    ids: Sequence[int] = ()
    echo: Echo = NO_ECHO
    scores: list[dict[str, Any] | None] | None = None  # of `prompt_logprobs`, in vLLM's shape


def whole(head: Head, parts: Sequence[tuple[Source, Sequence[Delta]]], usage: Usage) -> bytes:
    """The one object of a response that is not streamed: each prompt and its choices, whose deltas hold all of them."""
    chat, (first, _) = head.kind is Kind.CHAT, parts[0]
    body: dict[str, Any] = {
        "id": head.request_id,
        "object": "chat.completion" if chat else "text_completion",
        "created": head.created_unix_s,
        "model": head.model,
        "choices": [one for source, choices in parts for one in _choices(head, source, choices)],
        "usage": usage.to_json(),
    }
    if chat and head.return_token_ids:
        body["prompt_token_ids"] = list(first.ids)
    if chat and first.scores is not None:
        body["prompt_logprobs"] = first.scores
    return msgspec.json.encode(body)


def _choices(head: Head, source: Source, choices: Sequence[Delta]) -> list[dict[str, Any]]:
    tokens = Tokens(head, source.echo)
    return [_choice(head, choice, source, tokens.of(choice)) for choice in choices]


def _choice(head: Head, choice: Delta, source: Source, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"index": choice.index}
    chat, text = head.kind is Kind.CHAT, source.echo.text + choice.text
    if chat:
        fields["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        fields["text"] = text
    fields |= {"logprobs": logprobs, "finish_reason": choice.finish_reason}
    if head.return_token_ids:
        fields["token_ids"] = list(choice.token_ids)
        if not chat:
            fields["prompt_token_ids"] = list(source.ids)
    if not chat and source.scores is not None:
        fields["prompt_logprobs"] = source.scores
    if head.tells_sums:
        fields["cumulative_logprob"] = sum(note.logprob for note in choice.notes if note is not None)
    return fields


class Tokens:
    """The log-probabilities of a response's tokens, as its kind has them; None where nobody asked."""

    def __init__(self, head: Head, echo: Echo) -> None:
        self._head = head
        self._lists = CompletionLists(head.names, echo) if head.kind is Kind.COMPLETION and head.names else None

    def of(self, delta: Delta) -> dict[str, Any] | None:
        """Of all tokens of a delta; those of one choice come in order."""
        names = self._head.names
        if names is None:
            return None
        if self._lists is not None:
            return self._lists.piece(delta.index, delta.token_ids, delta.notes)
        return {"content": chat_entries(names, delta.token_ids, delta.notes), "refusal": None}


class ChunkWriter:
    """Writes the events of one streamed response: first, one per delta, usage if asked for; then sse.DONE.

    What was used so far is asked for only by those events that tell it.
    """

    def __init__(self, head: Head, source: Source, usage_so_far: Callable[[], Usage]) -> None:
        self._head, self._tokens, self._usage_so_far = head, Tokens(head, source.echo), usage_so_far
        self._echo_text, self._echoed = source.echo.text, set[int]()
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
            b',"prompt_token_ids":' + msgspec.json.encode(list(source.ids)) if head.return_token_ids else b""
        )

    def first(self, choices: int) -> bytes:
        """Each choice's role: chats open with it, and no later chunk has one."""
        if not self._chat:
            return b""
        rest = self._prompt_ids + self._usage()
        return b"".join(
            self._event(index, b'"delta":{"role":"assistant","content":""}', b"null", b',"logprobs":null', rest)
            for index in range(choices)
        )

    def delta(self, delta: Delta) -> bytes:
        text, told = self._no_text, delta.text
        if self._echo_text and delta.index not in self._echoed:
            self._echoed.add(delta.index)
            told = self._echo_text + told
        if told:
            text = self._text_open + sse.text_of(told) + self._text_close
        reason = b'"' + delta.finish_reason.encode() + b'"' if delta.finish_reason else b"null"
        ids = b""
        if self._head.return_token_ids:
            ids = b',"token_ids":' + msgspec.json.encode(delta.token_ids)
            if not self._chat:
                ids, self._prompt_ids = ids + self._prompt_ids, b""
        if self._head.names is not None:
            ids = b',"logprobs":' + sse.text_of(self._tokens.of(delta)) + ids
        else:
            ids = b',"logprobs":null' + ids
        return self._event(delta.index, text, reason, ids, self._usage())

    def usage(self) -> bytes:
        """The one chunk without choices; only for those who asked."""
        if not self._head.include_usage:
            return b""
        return self._open + b'],"usage":' + self._told_usage() + b"}" + sse.SUFFIX

    def _usage(self) -> bytes:
        if self._head.continuous_usage:
            return b',"usage":' + self._told_usage()
        return b',"usage":null' if self._head.include_usage else b""

    def _told_usage(self) -> bytes:
        return msgspec.json.encode(self._usage_so_far().to_json())

    def _event(self, index: int, text: bytes, reason: bytes, in_choice: bytes, beside: bytes) -> bytes:
        return b'%b{"index":%d,%b,"finish_reason":%b%b}]%b}\n\n' % (self._open, index, text, reason, in_choice, beside)
