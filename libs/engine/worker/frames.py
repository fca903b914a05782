"""Turns what a step did into token frames, one per gateway, each small enough for the broker. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from libs.contracts import codec
from libs.contracts.messages import FrameRow, Resident, RowResult, TokenFrame
from libs.engine.worker.step_values import StepReport


def frames_of(
    report: StepReport, traceparents: Sequence[str], *, cell: str, sent_ns: int, max_payload_bytes: int
) -> Iterator[tuple[str, bytes]]:
    """(gateway, encoded TokenFrame) for all rows with news for a client: tokens, or an end. A hypothesis is none.

    `traceparents` has one entry per row of the report: the worker's span in the first of a residence, else "".
    """
    result = report.result
    by_gateway: dict[str, list[FrameRow]] = {}
    for resident, row, traceparent in zip(report.residents, result.rows, traceparents, strict=True):
        if (row.ids or row.end) and not resident.candidates:
            by_gateway.setdefault(resident.gateway, []).append(_frame_row(resident, row, traceparent))
    for gateway, rows in by_gateway.items():
        frame = TokenFrame(cell, result.term, result.incarnation, result.step_number, sent_ns, tuple(rows))
        for payload in _split(frame, max_payload_bytes):
            yield gateway, payload


def _split(frame: TokenFrame, max_payload_bytes: int) -> Iterator[bytes]:
    """The frame, or its halves while it is too large; a single row goes as it is."""
    payload = codec.encode(frame)
    if len(payload) <= max_payload_bytes or len(frame.rows) == 1:
        yield payload
        return
    half = len(frame.rows) // 2
    yield from _split(replace(frame, rows=frame.rows[:half]), max_payload_bytes)
    yield from _split(replace(frame, rows=frame.rows[half:]), max_payload_bytes)


def _frame_row(resident: Resident, row: RowResult, traceparent: str) -> FrameRow:
    return FrameRow(
        resident.request_id,
        resident.epoch,
        resident.choice,
        row.position,
        row.ids,
        row.logprobs,
        row.end,
        resident.cached_tokens,
        traceparent,
        row.top_ids,
        row.top_logprobs,
    )
