"""What became of grammars is remembered, and bounded."""

from libs.contracts.messages import Grammar
from services.tokenizer.grammars import Verdicts


def pattern(source: str) -> Grammar:
    return Grammar("regex", source, "structured_outputs")


def test_the_verdicts_asked_for_latest_stay() -> None:
    """A large one takes the place of several that nobody asked for."""
    verdicts = Verdicts(most_bytes=3000)
    for name in "abcd":
        verdicts.put(pattern(name), "no")
    assert verdicts.get(pattern("a")) == "no"

    verdicts.put(pattern("e" * 1300), "no")

    assert [verdicts.get(pattern(name)) for name in "abcd"] == ["no", None, None, "no"]


def test_a_verdict_is_of_its_field_and_blanks() -> None:
    """An error names the field of its own request."""
    verdicts = Verdicts()
    verdicts.put(pattern("a"), "no")

    assert verdicts.get(Grammar("regex", "a", "guided_regex")) is None
    assert verdicts.get(Grammar("regex", "a", "structured_outputs", " ")) is None
