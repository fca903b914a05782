"""Tokens as the grammar library sees them, of tokenizers that are not byte-level."""

import random
from pathlib import Path

import pytest

from libs.structured.vocabulary import open_vocabulary
from libs.text.model_files import read_model_files
from libs.text.tokenizer import Tokenizer
from tests.cases.models import byte_fallback_model
from tests.unit.structured.walks import Language


@pytest.mark.parametrize("text", ["naïve 𝔘𝔫𝔦 ✅ ñandú", "the other", "  two spaces", "theory", "\x02", " "])
def test_a_tokenizer_that_begins_texts_with_a_blank_adds_none(text: str, tmp_path: Path) -> None:
    """What a grammar forces is itself, though its tokenizer would write it otherwise."""
    tokenizer = Tokenizer(read_model_files(byte_fallback_model(tmp_path / "model")))
    language = Language(tokenizer, open_vocabulary(tokenizer, [2], tokenizer.vocab_size), 2)
    matcher = language.matcher("choice", f'["{text}"]' if text != "\x02" else '["\\u0002"]')

    assert language.walk(matcher, random.Random(0)) == ("stop", text.encode())
