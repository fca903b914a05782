"""What a client saw of one request, streamed or not, read the same way; and what must hold of any answer at all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

DONE = "[DONE]"
REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")


def strictly(text: str | bytes) -> Any:
    """JSON without the NaN and Infinity that Python would also read."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@dataclass
class Reply:
    """One answer. `events` are the JSON objects of a stream, `heard_s` when each came, from the request on."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)
    heard_s: list[float] = field(default_factory=list)
    is_done: bool = False  # the stream ended with [DONE]
    took_s: float = 0.0

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @cached_property
    def json(self) -> Any:
        return strictly(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.events[-1]["error"] if self.is_stream else self.json["error"]
        return found

    def choices(self, index: int = 0) -> list[dict[str, Any]]:
        """What came of one choice: the whole of it, or its chunks."""
        objects = self.events if self.is_stream else [self.json]
        return [choice for one in objects for choice in one.get("choices", ()) if choice["index"] == index]

    @property
    def indexes(self) -> list[int]:
        objects = self.events if self.is_stream else [self.json]
        return sorted({choice["index"] for one in objects for choice in one.get("choices", ())})

    def deltas(self, index: int = 0) -> list[str]:
        return [_text(choice) for choice in self.choices(index)]

    def text_of(self, index: int) -> str:
        return "".join(self.deltas(index))

    @property
    def text(self) -> str:
        return self.text_of(0)

    @property
    def texts(self) -> list[str]:
        return [self.text_of(index) for index in self.indexes]

    @property
    def reasons(self) -> list[str]:
        return [c["finish_reason"] for index in self.indexes for c in self.choices(index) if c["finish_reason"]]

    @property
    def reason(self) -> str:
        return self.reasons[0]

    @property
    def usage(self) -> dict[str, Any]:
        """The last that was told."""
        told = [one["usage"] for one in (self.events if self.is_stream else [self.json]) if one.get("usage")]
        return dict(told[-1])

    @property
    def prompt_tokens(self) -> int:
        return int(self.usage["prompt_tokens"])

    @property
    def tokens(self) -> int:
        return int(self.usage["completion_tokens"])

    @property
    def cached_tokens(self) -> int:
        return int(self.usage["prompt_tokens_details"]["cached_tokens"])

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The log-probabilities of choice 0: a chat's entries, in order."""
        told = [choice["logprobs"] for choice in self.choices() if choice.get("logprobs")]
        return [entry for one in told for entry in one["content"]]

    @property
    def lists(self) -> dict[str, list[Any]]:
        """The log-probabilities of choice 0: a completion's lists, by name, joined."""
        told = [choice["logprobs"] for choice in self.choices() if choice.get("logprobs")]
        return {name: [item for one in told for item in one[name]] for name in told[0]}

    def check(self) -> None:
        """What holds of every answer: an error is an envelope, a stream is whole and each choice ends once."""
        if self.status >= 400 and self.headers.get("content-length") != "0":
            assert self.headers["content-type"].startswith("application/json")
            assert set(self.json["error"]) == {"message", "type", "param", "code"}
        if self.status == 200 and self.is_stream and "error" not in self.events[-1]:
            assert self.is_done
            assert len({event["id"] for event in self.events}) == 1
            for index in self.indexes:
                reasons = [choice["finish_reason"] for choice in self.choices(index)]
                assert reasons[-1] in REASONS and not any(reasons[:-1])


def _text(choice: Mapping[str, Any]) -> str:
    holder = choice.get("delta", choice.get("message", choice))
    return holder.get("content", holder.get("text")) or ""
