"""Leaves made of records: end to end, with shared boundaries, and holes where something is missing."""

from typing import Any

import msgspec
import pytest

from libs.contracts import conventions as names
from libs.contracts.trace_records import (
    Arrived,
    Decided,
    Head,
    Joined,
    Order,
    Record,
    Report,
    Served,
    Steps,
    Tokenized,
    Waited,
)
from libs.timeline.leaves import covered, decode_share, first_leaves_of, leaves_of
from libs.timeline.perfetto import perfetto
from libs.timeline.shapes import trace_shape
from libs.timeline.trace import Store, Trace

R = "cmpl-1"
SERVED = Served(R, "ab" * 16, "m", "text_completion", True, 10, 20, 25, 40, 220, 222, 225, 320, 323, 330, 33, 0, 3)
TOKENIZED = Tokenized(R, 35, 50, 60, 70, 75, 78, 80, 95, 33)
ORDER = Order(110, "decode_worker-0", 1, ((R, 0, 33),), (), (), ((R, 32),), 0, 3, 10, 0, 1)


def decided(at_ns: int, reason: str) -> Decided:
    return Decided(R, at_ns, reason, 1, 1, 3, 9, 10)


GATEWAY: list[Record] = [SERVED]
TOKENIZER: list[Record] = [TOKENIZED]
SCHEDULER: list[Record] = [
    Arrived(R, 90, 33),
    decided(90, "behind_older"),
    decided(100, "no_blocks"),
    decided(110, "admitted"),
    ORDER,
    decided(215, "decoding"),
    decided(315, "stopped"),
]
WORKER: list[Record] = [
    Joined(R, 1, 120, 0),
    Steps(1, (R, "other"), (32, 1), (0, 1), [122, 150]),
    Steps(2, ("other",), (1,), (1,), [151, 180]),
    Steps(3, (R,), (1,), (1,), [181, 210]),
    Waited(R, "out_of_grant", 210, 240),
    Steps(4, (R,), (1,), (1,), [242, 270, 272, 310]),
]
PARTS: dict[str, list[Record]] = {
    "gateway": GATEWAY,
    "tokenizer": TOKENIZER,
    "scheduler": SCHEDULER,
    "decode_worker": WORKER,
}
EXPECTED = [
    (names.RECEIVE, 20),
    (names.VALIDATE, 25),
    (names.PUBLISH, 35),
    (names.PULL, 50),
    (names.TEMPLATE, 60),
    (names.ENCODE, 70),
    (names.RETURN, 75),
    (names.HASH, 78),
    (names.LOOK_UP, 80),
    (names.PUBLISH_SEQUENCE, 90),
    ("wait.behind_older", 100),
    ("wait.no_blocks", 110),
    (names.ORDER, 120),
    (names.BOUNDARY, 122),
    (names.CHUNK, 150),
    (names.BOUNDARY, 151),
    (names.WAIT_CHUNK_BUDGET, 180),
    (names.BOUNDARY, 181),
    (names.STEP, 210),
    ("wait.out_of_grant", 240),
    (names.BOUNDARY, 242),
    (names.STEP, 270),
    (names.BOUNDARY, 272),
    (names.STEP, 310),
    (names.FRAME, 320),
    (names.DETOKENISE, 323),
    (names.WRITE, 330),
]


def store(without: str = "", **heads: Any) -> Store:
    """Of all processes but one."""
    return Store(
        (Head(name, f"{name}-0", 1, heads.get(name, ("boot", 1000))[0], heads.get(name, ("boot", 1000))[1], 0), part)
        for name, part in PARTS.items()
        if name != without
    )


def trace_of(kept: Store) -> Trace:
    trace = kept.find(R)
    assert trace is not None
    return trace


def test_a_request_is_in_one_leaf_at_any_moment() -> None:
    """From its first byte to its last; where one leaf ends the next begins, and the two have the same timestamp."""
    kept = store()

    leaves = leaves_of(kept, trace_of(kept))

    assert [(leaf.name, leaf.end_ns) for leaf in leaves] == EXPECTED
    assert [leaf.start_ns for leaf in leaves] == [10, *(leaf.end_ns for leaf in leaves[:-1])]
    assert covered(leaves, 10, 330) == 1.0


def test_the_time_to_the_first_token_ends_with_its_write() -> None:
    """Up to the step that drew it, then the frame's way: what the worker does meanwhile is none of it."""
    kept = store()

    leaves = first_leaves_of(kept, trace_of(kept))

    assert [(leaf.name, leaf.end_ns) for leaf in leaves[-4:]] == [
        (names.STEP, 210),
        (names.FRAME, 220),
        (names.DETOKENISE, 222),
        (names.WRITE, 225),
    ]
    assert covered(leaves, 10, 225) == 1.0


def test_a_hand_over_is_not_on_the_first_tokens_way() -> None:
    """It may be decided while the frame with that token is still on its way to the gateway."""
    handed = [decided(215, "handed_over") if record == decided(215, "decoding") else record for record in SCHEDULER]
    heads = (Head(name, f"{name}-0", 1, "boot", 1000, 0) for name in PARTS)
    kept = Store(zip(heads, (PARTS | {"scheduler": handed}).values(), strict=True))

    leaves = first_leaves_of(kept, trace_of(kept))

    assert [(leaf.name, leaf.end_ns) for leaf in leaves[-4:-2]] == [(names.STEP, 210), (names.FRAME, 220)]
    assert covered(leaves, 10, 225) == 1.0


def test_decoding_is_steps_and_waits_with_a_reason() -> None:
    """The boundary after a wait is neither; the one between two steps that held it is the second's."""
    kept = store()

    assert decode_share(kept, trace_of(kept)) == pytest.approx(98 / 100)


@pytest.mark.parametrize(("part", "at_most"), [("tokenizer", 0.85), ("scheduler", 0.88), ("decode_worker", 0.75)])
def test_a_process_without_records_leaves_a_hole(part: str, at_most: float) -> None:
    """Nothing else is made to cover its time."""
    kept = store(without=part)

    assert sum(leaf.duration_ns for leaf in leaves_of(kept, trace_of(kept))) > 90
    assert covered(leaves_of(kept, trace_of(kept)), 10, 330) < at_most


def test_steps_that_were_not_written_down_leave_a_hole() -> None:
    """Between two steps of one worker whose numbers are not consecutive nobody knows what was."""
    lacking = [record for record in WORKER if not (isinstance(record, Steps) and record.first == 2)]
    kept = Store(
        (Head(name, f"{name}-0", 1, "b", 0, 0), part) for name, part in {**PARTS, "decode_worker": lacking}.items()
    )

    assert covered(leaves_of(kept, trace_of(kept)), 10, 330) == pytest.approx(1 - 31 / 320)


def test_what_a_lost_worker_reported_and_had_not_written_down_is_told_as_that() -> None:
    """Up to the last step that the scheduler took in it was in steps; from there on it waits."""
    lost = Store(
        [
            (
                Head("gateway", "g", 1, "b", 0, 0),
                [Served(R, "", "m", "chat", True, 100, 0, 0, 0, 130, 0, 0, 480, 0, 500)],
            ),
            (
                Head("scheduler", "s", 1, "b", 0, 0),
                [
                    Arrived(R, 100, 33),
                    decided(100, "admitted"),
                    Report(160, 200, "w", 2, 9, 8, 1, 3, 3),
                    decided(300, "worker_lost"),
                    decided(400, "admitted"),
                ],
            ),
            (Head("decode_worker", "w", 1, "b", 0, 0), [Joined(R, 1, 110, 0), Steps(1, (R,), (33,), (1,), [110, 120])]),
            (Head("decode_worker", "v", 1, "b", 0, 0), [Joined(R, 2, 410, 0), Steps(1, (R,), (41,), (1,), [410, 470])]),
        ]
    )

    leaves = leaves_of(lost, trace_of(lost))

    assert [(leaf.name, leaf.end_ns) for leaf in leaves[2:7]] == [
        (names.REPORTED, 200),
        ("wait.worker_lost", 300),
        ("wait.worker_lost", 400),
        (names.ORDER, 410),
        (names.CHUNK, 470),
    ]


def test_a_second_scheduler_that_takes_the_request_in_changes_nothing_of_its_beginning() -> None:
    """It arrives there as well, long after its first token; so does what a tokenizer did again."""
    again: dict[str, list[Record]] = {
        "scheduler": [*SCHEDULER, Arrived(R, 290, 33)],
        "tokenizer": [TOKENIZED, Tokenized(R, 280, 281, 282, 283, 284, 285, 286, 289, 33)],
    }
    kept = Store((Head(name, f"{name}-0", 1, "b", 0, 0), part) for name, part in {**PARTS, **again}.items())

    assert [(leaf.name, leaf.end_ns) for leaf in leaves_of(kept, trace_of(kept))] == EXPECTED


def test_a_request_whose_gateway_is_lost_is_shown_as_far_as_it_is_known() -> None:
    """From the tokenizer to the last step."""
    kept = store(without="gateway")

    leaves = leaves_of(kept, trace_of(kept))

    assert (leaves[0].start_ns, leaves[-1].end_ns) == (35, 315)


def test_another_hosts_times_are_moved_to_this_clock() -> None:
    """By what the two hosts' clocks differ from 1970; processes of one host are not moved against each other."""
    kept = store(decode_worker=("another boot", 3000), tokenizer=("boot", 1007))

    trace = trace_of(kept)

    assert trace.joined[0].at_ns == 2120
    assert trace.tokenized[0].pulled_ns == 35


def test_a_request_is_found_by_its_id_a_beginning_of_it_or_its_trace_id() -> None:
    """What two have in common names neither."""
    kept = store()

    assert all(kept.find(name) is trace_of(kept) for name in (R, "cmpl", "ab" * 16))
    assert kept.find("c") is trace_of(kept) and kept.find("") is None and kept.find("x") is None


def test_a_step_leads_to_its_requests_and_a_request_to_its_steps() -> None:
    """Both ways, by worker and number."""
    kept = store()

    step = kept.step("decode_worker-0", 1)

    assert step is not None and step.request_ids == (R, "other") and step.batch_tokens == 33
    assert [s.number for s in trace_of(kept).steps] == [1, 3, 4, 5]
    assert kept.step("decode_worker-0", 9) is None


def test_the_shapes_hold_the_leaves_in_wall_time() -> None:
    """JSON for programs, slices for Perfetto."""
    kept = store()

    shape = trace_shape(kept, trace_of(kept))
    slices = [event for event in perfetto(kept, trace_of(kept))["traceEvents"] if event["ph"] == "X"]

    assert [(leaf["name"], leaf["end_ns"] - 1000) for leaf in shape["leaves"]] == EXPECTED
    assert shape["coverage"]["end_to_end"] == 1.0
    assert shape["orders"][0]["worker"] == "decode_worker-0"
    assert [(event["name"], event["ts"] * 1000 + event["dur"] * 1000 - 1000) for event in slices[: len(EXPECTED)]] == [
        (name, pytest.approx(end_ns)) for name, end_ns in EXPECTED
    ]
    assert {event["name"] for event in slices[len(EXPECTED) :]} == {f"step {number}" for number in range(1, 6)}
    assert msgspec.json.encode(shape)
