"""The wire and the values agree field by field, and what goes out comes back."""

from dataclasses import fields, is_dataclass
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts import codec, errors, messages
from libs.contracts.errors import MalformedMessage
from libs.contracts.messages import (
    Cancel,
    FrameRow,
    GenerateRequest,
    Grammar,
    Known,
    SamplingParams,
    StopAt,
    TokenFrame,
)

VALUES: list[type[Any]] = [
    kind for kind in [*vars(messages).values(), errors.WireError] if isinstance(kind, type) and is_dataclass(kind)
]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: str(kind.__name__))
def test_a_value_has_the_fields_of_its_wire_message(kind: type[Any]) -> None:
    """Same names in the same order of numbers: nothing is dropped between them."""
    wire = codec.wire_class(kind.__name__).DESCRIPTOR.fields_by_number

    assert [field.name for field in fields(kind)] == [wire[number].name for number in sorted(wire)]


@pytest.mark.parametrize("envelope", codec.ENVELOPES)
def test_an_envelope_names_exactly_its_members(envelope: str) -> None:
    """A member missing on one side could be sent and never understood."""
    wire = codec.wire_class(envelope).DESCRIPTOR.oneofs_by_name["body"]

    assert {field.message_type.name for field in wire.fields if field.message_type} == {
        kind.__name__ for kind in get_args(codec.ENVELOPES[envelope])
    }


@given(
    st.builds(
        SamplingParams,
        temperature=st.floats(0, 2),
        seed=st.integers(0, 2**64 - 1),
        max_tokens=st.integers(1, 2**31),
        logprobs=st.integers(-1, 20),
        stop_token_ids=st.lists(st.integers(0, 2**31)).map(tuple),
    )
)
def test_sampling_parameters_survive_the_wire(params: SamplingParams) -> None:
    """Every bit: a seed of 2⁶⁴ − 1 and a temperature of 0.1 come back as they were."""
    assert codec.decode(SamplingParams, codec.encode(params)) == params


def test_a_frame_survives_the_wire() -> None:
    """Nested rows and empty fields come back equal."""
    row = FrameRow("r", 1, 0, 3, (5, 6), (), "stop", 16, "")
    frame = TokenFrame("c0", 4, "ab", 17, 9, (row, row))

    assert codec.decode(TokenFrame, codec.encode(frame)) == frame


def test_an_envelope_gives_back_its_member() -> None:
    """The kind of the member is part of the message."""
    assert codec.decode_in("ControlMessage", codec.encode_in("ControlMessage", StopAt("r", 0, 7))) == StopAt("r", 0, 7)
    assert codec.decode_in("ControlMessage", codec.encode_in("ControlMessage", Cancel("r", 5))) == Cancel("r", 5)


@pytest.mark.parametrize("payload", [b"\xff\xff", b"\x80\x04\x95pickle", b""])
def test_bytes_that_are_no_message_are_refused(payload: bytes) -> None:
    """Junk on a subject is a typed error, never a half-filled value."""
    with pytest.raises(MalformedMessage):
        codec.decode_in("ControlMessage", payload)


def test_an_empty_value_is_a_message() -> None:
    """All fields at their defaults encode to no bytes, which is valid."""
    assert codec.decode(Known, b"") == Known(live=False)


def test_a_field_that_is_left_out_is_told_from_one_that_is_zero() -> None:
    """A temperature of 0 is greedy, none is the default."""
    bare, zero = GenerateRequest("m", prompt=""), GenerateRequest("m", temperature=0.0, ignore_eos=False, top_k=-1)

    assert codec.decode(GenerateRequest, codec.encode(bare)) == bare
    assert codec.decode(GenerateRequest, codec.encode(zero)) == zero


def test_a_grammar_that_is_not_there_is_told_from_an_empty_one() -> None:
    """Any text may follow without one, nothing with one that says nothing."""
    bare, held = SamplingParams(), SamplingParams(grammar=Grammar("regex", "", "structured_outputs"))

    assert codec.decode(SamplingParams, codec.encode(bare)) == bare
    assert codec.decode(SamplingParams, codec.encode(held)) == held
