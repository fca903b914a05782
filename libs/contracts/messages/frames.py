"""Tokens on their way from a worker to a gateway."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrameRow:
    request_id: str
    epoch: int
    choice: int
    position: int  # of ids[0]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # empty unless asked for
    end: str  # "" | "stop" | "length" | "error" | "dead_end"; of "stop" the last id is the token that ended it
    cached_tokens: int
    traceparent: str  # set in the first row of a residence: the worker's span
    top_ids: tuple[int, ...] = ()  # equally many for each of `ids`, the likeliest in its place; empty unless asked for
    top_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenFrame:
    """One per step and gateway. Repeat key: (request_id, choice, position)."""

    cell: str
    term: int
    incarnation: str
    step_number: int
    sent_ns: int
    rows: tuple[FrameRow, ...]
