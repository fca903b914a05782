"""Incremental text equals the text of all ids at once, however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.text.detokenize import Detokenizer
from libs.text.tokenizer import Tokenizer
from tests.unit.text.small_model import BOS, EOS, FIRST_BYTE, small_files

TOKENIZER = Tokenizer(small_files())
IDS = st.lists(st.integers(0, TOKENIZER.vocab_size - 1), max_size=40)


def ids_of(raw: bytes) -> list[int]:
    return [FIRST_BYTE + byte for byte in raw]


@given(IDS | st.text(max_size=12).map(lambda text: ids_of(text.encode("utf-8", "ignore"))), st.data(), st.booleans())
def test_any_cut_gives_the_text_of_all_ids_at_once(ids: list[int], draw: st.DataObject, skip: bool) -> None:
    """Pushing pieces and finishing joins to the one-shot decode, valid UTF-8 or not."""
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    detokenizer = Detokenizer(TOKENIZER, skip_special_tokens=skip)

    pieces = [detokenizer.push(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    text = "".join(pieces) + detokenizer.finish()

    assert text == TOKENIZER.decode(ids, skip_special_tokens=skip)


def test_a_character_comes_with_the_token_that_completes_it() -> None:
    """The bytes of an emoji are held until the last one is there."""
    detokenizer = Detokenizer(TOKENIZER)

    pieces = [(detokenizer.push_one(token_id), detokenizer.held_bytes) for token_id in ids_of("🫠".encode())]

    assert pieces == [("", 1), ("", 2), ("", 3), ("🫠", 0)]


@pytest.mark.parametrize("kept_bytes", [1, 2, 3])
def test_a_character_cut_short_ends_as_one_replacement(kept_bytes: int) -> None:
    """At the end an incomplete tail becomes a single U+FFFD."""
    detokenizer = Detokenizer(TOKENIZER)

    text = detokenizer.push(ids_of(b"a" + "🫠".encode()[:kept_bytes]))

    assert (text, detokenizer.finish(), detokenizer.held_bytes) == ("a", "\ufffd", 0)


def test_bytes_that_cannot_be_text_are_replaced_at_once() -> None:
    """Each maximal invalid prefix is one U+FFFD, as Python's decoder does it."""
    detokenizer = Detokenizer(TOKENIZER)

    assert detokenizer.push(ids_of(b"\xff\xe2\x82a\xc0")) == "\ufffd\ufffda\ufffd"


def test_special_tokens_show_only_when_asked_for() -> None:
    """Control tokens are skipped by default."""
    assert Detokenizer(TOKENIZER).push([BOS, *ids_of(b"x"), EOS]) == "x"
    assert Detokenizer(TOKENIZER, skip_special_tokens=False).push([BOS, *ids_of(b"x"), EOS]) == "<s>x</s>"


def test_leading_spaces_stay() -> None:
    """Nothing is trimmed from the first piece."""
    ids = TOKENIZER.encode("  two", add_special_tokens=False)

    assert Detokenizer(TOKENIZER).push(ids) == "  two"
