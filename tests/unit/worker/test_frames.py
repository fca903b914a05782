"""What gateways are sent after a step."""

from dataclasses import replace

from libs.contracts import codec
from libs.contracts.messages import FrameRow, RowResult, StepResult, TokenFrame
from libs.engine.worker.frames import frames_of
from libs.engine.worker.step_values import StepReport
from tests.unit.worker.orders import IDENTITY, prompt, resident

LARGE_BYTES = 1 << 20


def report(rows: list[tuple[RowResult, str]]) -> StepReport:
    """A step of these rows, each with the gateway of its request."""
    results = tuple(row for row, _ in rows)
    step = StepResult(IDENTITY.incarnation, 3, 8, 17, results, (), (), 0, len(rows), 1, 2)
    residents = (resident(row.sequence, prompt(2), [0], gateway=gateway, cached_tokens=1) for row, gateway in rows)
    return StepReport(step, tuple(residents))


def row(sequence: int, position: int = 0, **changes: object) -> RowResult:
    plain = RowResult(sequence, 1, 5, position, (900 + sequence,), (), "", False)
    return replace(plain, **changes)  # type: ignore[arg-type]


def frames(step: StepReport, *, max_payload_bytes: int = LARGE_BYTES) -> list[tuple[str, TokenFrame]]:
    traceparents = [""] * len(step.residents)
    made = frames_of(step, traceparents, cell="c0", sent_ns=5, max_payload_bytes=max_payload_bytes)
    return [(gateway, codec.decode(TokenFrame, payload)) for gateway, payload in made]


def test_each_gateway_gets_one_frame_with_its_rows() -> None:
    """One message a step and gateway, however many streams it has."""
    step = report([(row(1), "g0"), (row(2), "g1"), (row(3), "g0")])

    made = dict(frames(step))

    assert [r.request_id for r in made["g0"].rows] == ["r1", "r3"]
    assert [r.request_id for r in made["g1"].rows] == ["r2"]
    assert (made["g0"].cell, made["g0"].term, made["g0"].step_number, made["g0"].sent_ns) == ("c0", 3, 17, 5)


def test_a_row_carries_position_ids_end_and_what_the_client_is_told() -> None:
    """Everything that the gateway needs to place it."""
    step = report([(row(1, 7, logprobs=(-0.5,), end="stop"), "g0")])

    payloads = list(frames_of(step, ["00-t-s-01"], cell="c0", sent_ns=5, max_payload_bytes=LARGE_BYTES))

    frame = codec.decode(TokenFrame, payloads[0][1])
    assert frame.rows == (FrameRow("r1", 1, 0, 7, (901,), (-0.5,), "stop", 1, "00-t-s-01"),)


def test_a_step_without_news_for_clients_sends_nothing() -> None:
    """A chunk before the last draws no token."""
    assert frames(report([(row(1, ids=()), "g0")])) == []


def test_an_error_is_told_although_it_has_no_token() -> None:
    """It ends the choice for the client."""
    ((_, frame),) = frames(report([(row(1, 4, ids=(), end="error"), "g0")]))

    assert [(r.position, r.ids, r.end) for r in frame.rows] == [(4, (), "error")]


def test_a_frame_larger_than_the_broker_takes_is_split() -> None:
    """All rows arrive, in order, in messages below the limit; a single row goes as it is."""
    step = report([(row(n), "g0") for n in range(1, 41)])

    made = frames(step, max_payload_bytes=400)

    assert len(made) > 1
    assert [r.request_id for _, frame in made for r in frame.rows] == [f"r{n}" for n in range(1, 41)]
    assert all(len(codec.encode(frame)) <= 400 for _, frame in made)
    assert len(frames(step, max_payload_bytes=1)) == 40
