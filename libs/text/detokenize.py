"""Turns generated ids into text as they come; text once given out never changes."""

import codecs
from collections.abc import Iterable
from typing import Protocol


class TokenBytes(Protocol):
    """What detokenising needs to know of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...


class Detokenizer:
    """One sequence's text so far.

    Works on bytes: a character whose bytes are spread over tokens comes out with the token that completes it, and
    bytes that cannot be UTF-8 become U+FFFD as in `bytes.decode("utf-8", "replace")`. However the ids are cut into
    calls, all that is returned joins to the decode of all ids at once.
    """

    def __init__(self, tokenizer: TokenBytes, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def held_bytes(self) -> int:
        """How many bytes wait for the rest of their character; at most 3."""
        return len(self._decoder.getstate()[0])

    def push(self, ids: Iterable[int]) -> str:
        """The text that these ids complete."""
        return "".join(map(self.push_one, ids))

    def push_one(self, token_id: int) -> str:
        """The text that this id completes: a character belongs to the token that brought its last byte."""
        if self._skip_special_tokens and self._tokenizer.is_special(token_id):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """What is left at the end: one U+FFFD for a character cut short, else nothing. Starts afresh."""
        tail = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return tail
