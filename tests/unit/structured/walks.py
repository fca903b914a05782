"""Answers drawn at random from what a grammar allows: no model is needed to see whether its text can go wrong."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer

from libs.contracts.messages import Grammar
from libs.structured.compiling import compile_grammar
from libs.structured.resolve import resolve
from libs.structured.vocabulary import open_vocabulary
from libs.text.tokenizer import Tokenizer
from tests.unit.text.small_model import small_files

BLANKS = r"[ \n\r\t]{1,16}"
PADDED = 64  # rows of a model's head beyond its tokenizer


@dataclass(frozen=True)
class Language:
    """A tokenizer, and its vocabulary in a model that is a little wider."""

    tokenizer: Tokenizer
    vocabulary: LLTokenizer
    eos_id: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, size: int = 0) -> "Language":
        (eos_id,) = tokenizer.eos_ids
        return cls(tokenizer, open_vocabulary(tokenizer, [eos_id], size or tokenizer.vocab_size + PADDED), eos_id)

    @classmethod
    def small(cls, size: int = 0) -> "Language":
        return cls.of(Tokenizer(small_files()), size)

    def matcher(self, kind: str, source: str, blanks: str = BLANKS) -> LLMatcher:
        return compile_grammar(self.vocabulary, resolve(Grammar(kind, source, "structured_outputs", blanks)))

    def walk(self, matcher: LLMatcher, rng: random.Random, tokens: int = 400, haste: float = 0.5) -> tuple[str, bytes]:
        """How a random answer ended, by "stop" or "length", and its bytes. `haste` is how often it ends where it may,
        or else takes a token that ends something."""
        answer = b""
        for _ in range(tokens):
            ids = allowed(matcher)
            assert len(ids), "a dead end"
            ends = self.eos_id in ids
            token_id = self.eos_id if ends and (len(ids) == 1 or rng.random() < haste) else self._draw(ids, rng, haste)
            if token_id == self.eos_id:
                return "stop", answer
            assert matcher.consume_token(token_id), matcher.get_error()
            answer += self.tokenizer.token_bytes(token_id)
        return "length", answer

    def _draw(self, ids: npt.NDArray[np.int64], rng: random.Random, haste: float) -> int:
        closing = [i for i in ids[:400].tolist() if self.tokenizer.token_bytes(i) in (b'"', b"}", b"]", b":")]
        drawn: int = rng.choice(closing) if closing and rng.random() < haste else rng.choice(ids.tolist())
        return drawn if drawn != self.eos_id or len(ids) == 1 else int(next(i for i in ids if i != self.eos_id))


def allowed(matcher: LLMatcher) -> npt.NDArray[Any]:
    """The ids that may follow."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little"))
