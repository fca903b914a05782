"""What one process knows of a request by itself."""

from libs.contracts.trace_records import Served, Tokenized
from libs.timeline.phases import gateway_phases, tokenizer_phases

STREAMED = Served(
    "r", "t", "m", "chat", True, 10, read_ns=12, validated_ns=13, queued_ns=20, first_row_ns=50, first_text_ns=52,
    first_write_ns=55, last_row_ns=90, told_ns=93, ended_ns=94,
)  # fmt: skip


def test_a_gateway_knows_the_way_in_the_first_text_and_the_way_out() -> None:
    """What lies between them is others'."""
    assert [tuple(phase) for phase in gateway_phases(STREAMED)] == [
        ("gateway.receive", 10, 12),
        ("gateway.validate", 12, 13),
        ("gateway.publish", 13, 20),
        ("gateway.detokenise", 50, 52),
        ("gateway.write", 52, 55),
        ("gateway.detokenise", 90, 93),
        ("gateway.write", 93, 94),
    ]


def test_a_request_that_was_refused_has_the_way_in_alone() -> None:
    """Moments that never came are no phases."""
    refused = Served("r", "t", "m", "chat", True, 10, read_ns=12, validated_ns=13, ended_ns=30)

    assert [phase.name for phase in gateway_phases(refused)] == ["gateway.receive", "gateway.validate"]


def test_a_token_that_was_the_only_one_is_told_once() -> None:
    """The first text is the last."""
    short = Served("r", "t", "m", "chat", True, 10, first_row_ns=50, last_row_ns=50, first_text_ns=52, told_ns=60)

    assert [tuple(phase) for phase in gateway_phases(short)] == [("gateway.detokenise", 50, 52)]


def test_a_tokenizers_phases_lie_end_to_end_and_what_took_no_time_is_none() -> None:
    """A completion has no template."""
    tokenized = Tokenized("r", 10, 12, 12, 15, 16, 18, 20, 22, grammar_ns=11)

    assert [tuple(phase) for phase in tokenizer_phases(tokenized)] == [
        ("tokenizer.grammar", 10, 11),
        ("tokenizer.pull", 11, 12),
        ("tokenizer.encode", 12, 15),
        ("tokenizer.return", 15, 16),
        ("tokenizer.hash", 16, 18),
        ("tokenizer.look_up", 18, 20),
        ("tokenizer.publish", 20, 22),
    ]
