"""What each process writes down about requests and steps: the records of the local trace ring, and their encoding.

Times are nanoseconds of the host's monotonic clock, the same in all processes of a host; 0 is "never". A Head tells how
far that clock is from 1970. Nothing of a prompt or an answer is in a record but its length. Pure.
"""

from collections.abc import Sequence
from typing import Any

import msgspec


class Head(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Who wrote what follows. Opens every file."""

    service: str
    instance: str
    pid: int
    boot: str  # of the host: two processes with the same share a clock
    unix_offset_ns: int  # added to a time it makes nanoseconds since 1970
    dropped: int  # records that found no room so far


class Served(msgspec.Struct, array_like=True, tag=1):
    """A request as its gateway saw it, from its first byte to its last. Filled in while it lives, then written."""

    request_id: str
    trace_id: str
    model: str
    operation: str
    stream: bool
    arrived_ns: int
    read_ns: int = 0  # the body is there
    validated_ns: int = 0
    queued_ns: int = 0  # the broker has confirmed it
    first_row_ns: int = 0  # its first token is here
    first_text_ns: int = 0  # and is text
    first_write_ns: int = 0  # which the server has taken
    last_row_ns: int = 0
    told_ns: int = 0  # all text is made and, of a stream, written
    ended_ns: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    repairs: int = 0
    outcome: str = ""
    error: str = ""


class Tokenized(msgspec.Struct, array_like=True, tag=2):
    """A request as a tokenizer saw it."""

    request_id: str
    pulled_ns: int
    begun_ns: int = 0  # a thread has it
    rendered_ns: int = 0  # the template is done; the same as begun_ns where there is none
    encoded_ns: int = 0
    awake_ns: int = 0  # the event loop has it back
    hashed_ns: int = 0
    looked_up_ns: int = 0
    published_ns: int = 0
    prompt_tokens: int = 0
    known_tokens: int = 0  # of its prefix, as the index knew
    cell: str = ""
    error: str = ""
    grammar_ns: int = 0  # its grammar has been tried; 0 where it has none


class Arrived(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The scheduler took a sequence from its queue."""

    request_id: str
    at_ns: int
    prompt_tokens: int


class Decided(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """From here on a request is where it is for `reason`. Counts are those after the decision."""

    request_id: str
    at_ns: int
    reason: str
    older: int  # requests that wait before it
    running: int
    needs_blocks: int  # waiting: for all its known tokens, fewer where their prefix is cached
    held_blocks: int
    total_blocks: int
    left_ms: int = 0  # shed: to its deadline
    needs_ms: int = 0  # shed: from here on, at least
    swap_ns: int = -1  # preempted: what a swap there and back was put at; −1: there was no room for one
    recompute_ns: int = -1  # and computing its tokens again


class Order(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A version of a worker's standing order."""

    at_ns: int
    worker: str
    version: int
    added: tuple[tuple[str, int, int], ...]  # request, where it begins, tokens known of it
    removed: tuple[str, ...]
    granted: tuple[tuple[str, int], ...]  # request, blocks
    chunks: tuple[tuple[str, int], ...]  # request, tokens
    held_before: int
    held_after: int
    total_blocks: int
    waiting: int
    residents: int


class Report(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Steps of one worker, `first` to `last`, as the scheduler took them in; plain ones are one record."""

    at_ns: int  # of the first
    until_ns: int  # of the last
    worker: str
    first: int
    last: int
    batch_tokens: int  # of all of them
    rows: int  # of the last
    held_before: int
    held_after: int


class WorkerLost(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The scheduler gave a worker up."""

    at_ns: int
    worker: str


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A worker took a version that gives it a request."""

    request_id: str
    epoch: int
    at_ns: int
    cached_tokens: int


class Left(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """It ended there, or was taken away."""

    request_id: str
    epoch: int
    at_ns: int
    tokens: int
    steps: int


class Steps(msgspec.Struct, array_like=True, tag=10):
    """Consecutive steps of a worker with the same rows and the same number of tokens in each."""

    first: int  # number of the first step
    request_ids: tuple[str, ...]
    tokens: tuple[int, ...]  # a row's, in each step
    sampled: tuple[int, ...]  # 1 where the row drew a token in each step
    times_ns: list[int]  # start and end of each, in turn


class Waited(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A request was in a worker's order and could not advance."""

    request_id: str
    reason: str
    start_ns: int
    end_ns: int


Record = Head | Served | Tokenized | Arrived | Decided | Order | Report | WorkerLost | Joined | Left | Steps | Waited

_decoder = msgspec.msgpack.Decoder(list[Record])
_encoder = msgspec.msgpack.Encoder()


def encode(records: Sequence[Record]) -> bytes:
    return _encoder.encode(records)


def decode(payload: bytes) -> list[Any]:
    """Records of one batch. Raises msgspec.MsgspecError for what is none."""
    return _decoder.decode(payload)
