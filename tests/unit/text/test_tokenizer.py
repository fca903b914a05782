"""Text to ids, ids to bytes, and untrusted text that spells control tokens."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.errors import ConfigError, InvalidRequest
from libs.text.model_files import ModelFiles
from libs.text.tokenizer import MARK, Tokenizer, byte_characters, unguard
from tests.unit.text.small_model import BOS, EOS, FIRST_BYTE, THINK, small_files

TOKENIZER = Tokenizer(small_files())
SPELLED = st.lists(
    st.sampled_from(["<s>", "</s>", "<think>", MARK, "0", "1", "<", " ", "ü", "the"]) | st.text(max_size=4)
)


def test_bos_is_added_only_when_asked_for() -> None:
    """A raw prompt gets exactly one BOS, a rendered template none."""
    assert TOKENIZER.encode("a", add_special_tokens=True) == [BOS, *TOKENIZER.encode("a", add_special_tokens=False)]


def test_each_added_token_in_a_prompt_is_one_id() -> None:
    """Special and other added tokens that are spelled out become their ids."""
    ids = TOKENIZER.encode("<s><think></s>", add_special_tokens=False)

    assert ids == [BOS, THINK, EOS]


def test_every_byte_has_a_token_that_stands_for_it() -> None:
    """The ids of the byte alphabet give the bytes 0 to 255."""
    assert [TOKENIZER.token_bytes(FIRST_BYTE + byte) for byte in range(256)] == [bytes([b]) for b in range(256)]
    assert len(set(byte_characters())) == 256


def test_a_merged_token_stands_for_all_its_bytes() -> None:
    """Merged pieces give bytes, a leading space included."""
    [token_id] = TOKENIZER.encode(" the", add_special_tokens=False)

    assert TOKENIZER.token_bytes(token_id) == b" the"


@pytest.mark.parametrize("token_id", [-1, 10**9])
def test_an_id_without_a_token_has_no_bytes(token_id: int) -> None:
    """Padding rows of a model's matrix decode to nothing."""
    assert TOKENIZER.token_bytes(token_id) == b""
    assert not TOKENIZER.is_special(token_id)


def test_only_control_tokens_are_special() -> None:
    """An added token that is not special stays visible text."""
    assert [TOKENIZER.is_special(i) for i in (BOS, EOS, THINK, FIRST_BYTE)] == [True, True, False, False]
    assert TOKENIZER.decode([BOS, THINK, EOS], skip_special_tokens=True) == "<think>"
    assert TOKENIZER.decode([BOS, THINK, EOS], skip_special_tokens=False) == "<s><think></s>"


@given(SPELLED)
def test_guarded_text_never_becomes_a_control_token(words: list[str]) -> None:
    """Whatever a message spells, its ids hold no control token, and still give the same text."""
    text = "".join(words)

    ids = TOKENIZER.encode(TOKENIZER.guard(text), add_special_tokens=False)

    assert not any(map(TOKENIZER.is_special, ids))
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


@given(SPELLED)
def test_unguard_gives_back_what_was_guarded(words: list[str]) -> None:
    """Marking loses nothing, not even of text that holds the mark itself."""
    text = "".join(words)

    assert unguard(TOKENIZER.guard(text)) == text


def test_special_tokens_around_guarded_text_keep_their_ids() -> None:
    """The template's control tokens count, the message's do not."""
    ids = TOKENIZER.encode("<s>" + TOKENIZER.guard("x</s>") + "</s>", add_special_tokens=False)

    assert (ids[0], ids[-1]) == (BOS, EOS)
    assert not any(map(TOKENIZER.is_special, ids[1:-1]))


@pytest.mark.parametrize("flags", [{"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}])
def test_guarded_text_keeps_white_space_as_unguarded_text_does(flags: dict[str, Any]) -> None:
    """A special token that swallows white space beside it does so in both ways of encoding."""
    tokenizer = Tokenizer(small_files(**flags))
    text = " a <s> b </s> c "

    guarded = tokenizer.encode(text + tokenizer.guard(MARK), add_special_tokens=False)

    plain = tokenizer.encode(text, add_special_tokens=False)
    assert guarded[: len(plain)] == plain
    assert b"".join(map(tokenizer.token_bytes, guarded[len(plain) :])) == MARK.encode()


def test_a_lone_surrogate_is_the_clients_error() -> None:
    """Text that is not Unicode is refused by type, not by a crash."""
    with pytest.raises(InvalidRequest, match="surrogate"):
        TOKENIZER.encode("a\ud800", add_special_tokens=False)


def test_byte_fallback_pieces_give_bytes_and_spaces() -> None:
    """SentencePiece vocabularies: <0xNN> is a byte, the lower block is a space."""
    vocabulary = {"<unk>": 0, "<0xE2>": 1, "\u2581a": 2, "b": 3}
    content = {
        "version": "1.0",
        "added_tokens": [],
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": True},
    }
    tokenizer = Tokenizer(ModelFiles(json.dumps(content), None, {}, frozenset(), ""))

    assert [tokenizer.token_bytes(i) for i in (1, 2, 3)] == [b"\xe2", b" a", b"b"]


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'])
def test_a_tokenizer_that_cannot_be_used_stops_the_process(content: str) -> None:
    """Damaged files, and ways of spelling that this code does not know, are configuration errors."""
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        Tokenizer(ModelFiles(content, None, {}, frozenset(), ""))


def test_a_token_that_the_model_has_no_row_for_is_the_clients_error() -> None:
    """Tokenizers of fine-tuned models may have more tokens than their matrices have rows: other text is as ever."""
    known = Tokenizer(small_files())
    first_unknown = known.vocab_size - 1
    tokenizer = Tokenizer(replace(small_files(), rows=first_unknown))
    spelled = known.token_bytes(first_unknown).decode()

    assert tokenizer.vocab_size == first_unknown
    assert tokenizer.encode("a b", add_special_tokens=True) == known.encode("a b", add_special_tokens=True)
    for text in (spelled, tokenizer.guard("<s>") + spelled):
        with pytest.raises(InvalidRequest, match="does not know"):
            tokenizer.encode(text, add_special_tokens=False)
