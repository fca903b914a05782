"""Turns text into token ids and ids into exact bytes, from a model directory's tokenizer.json.

Text is encoded as other servers do: each added token that is spelled out becomes its one id. That is right for a
raw prompt and for what a chat template writes, but would let a user's message end its own turn. `guard` therefore
marks special tokens inside untrusted text before it is rendered, and `encode` turns what is marked into plain text.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer as Backend

from libs.contracts.errors import ConfigError, InvalidRequest
from libs.text.model_files import ModelFiles, read_model_files

# A Unicode noncharacter, never exchanged as text. After it, "0" stands for itself and "1" for a broken-up token.
MARK: Final = "\ufdd0"
MARKED: Final = re.compile(f"{MARK}([01])")
BYTE_PIECE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")
SPACE_PIECE: Final = "\u2581"


class Tokenizer:
    """One model's vocabulary. Immutable, and safe to use from many threads at once."""

    def __init__(self, files: ModelFiles) -> None:
        """Raises: ConfigError when the tokenizer cannot be loaded or spells tokens in an unknown way."""
        try:
            self._backend = Backend.from_str(files.tokenizer_json)
            self._plain_backend = Backend.from_str(files.tokenizer_json)
        except Exception as error:  # the only type that the library raises
            raise ConfigError(f"tokenizer.json cannot be loaded: {error}") from error
        self._plain_backend.encode_special_tokens = True
        added = self._backend.get_added_tokens_decoder()
        self._bytes = _byte_table(self._backend, {token_id: token.content for token_id, token in added.items()})
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._special = {added[token_id].content: (token_id, added[token_id]) for token_id in self._special_ids}
        self._special_pattern = _any_of(self._special)
        self.longest_token_bytes = max(map(len, self._bytes))  # no token stands for more
        self._known_ids = min(len(self._bytes), files.rows or len(self._bytes))
        self.eos_ids = files.eos_ids
        self.digest = files.digest

    @classmethod
    def from_dir(cls, model_dir: Path) -> "Tokenizer":
        """Load from a Hugging Face model directory. Raises: ConfigError."""
        return cls(read_model_files(model_dir))

    @property
    def vocab_size(self) -> int:
        """One more than the highest id that has a token and a row of the model's matrices; either may have more."""
        return self._known_ids

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Ids of text; added tokens spelled out in it become their ids, except where `guard` marked them.

        Args:
            add_special_tokens: put the tokens around it that the model wants, such as BOS. For a raw prompt;
                a rendered chat template has written them already.

        Raises: InvalidRequest when text is not valid Unicode (it holds a lone surrogate), or spells a token that was
            added to the tokenizer and that the model does not know.
        """
        if MARK in text:
            ids = [token_id for piece in self._pieces(text) for token_id in piece]
        else:
            ids = _ids(self._backend, text, add_special_tokens)
        if self._known_ids < len(self._bytes) and max(ids, default=0) >= self._known_ids:
            raise InvalidRequest(f"the text holds a token that the model does not know: it has {self._known_ids}")
        return ids

    def guard(self, text: str) -> str:
        """Mark each special token in untrusted text, so that `encode` gives the ids of its letters instead."""
        text = text.replace(MARK, f"{MARK}0")
        return self._special_pattern.sub(lambda found: f"{found[0][0]}{MARK}1{found[0][1:]}", text)

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes that an id stands for; none for an id without a token (a padding row of the model)."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token, which is not part of visible text."""
        return token_id in self._special_ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """All bytes at once, what is not UTF-8 replaced: what `Detokenizer` gives in pieces."""
        kept = (i for i in ids if not (skip_special_tokens and self.is_special(i)))
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")

    def _pieces(self, text: str) -> Iterator[list[int]]:
        """Ids piece by piece of guarded text: unmarked special tokens as ids, all between them as plain text."""
        start, strip_left = 0, False
        for found in self._special_pattern.finditer(text):
            token_id, token = self._special[found[0]]
            yield self._plain(text[start : found.start()], strip_left, token.lstrip)
            yield [token_id]
            start, strip_left = found.end(), token.rstrip
        yield self._plain(text[start:], strip_left, False)

    def _plain(self, text: str, strip_left: bool, strip_right: bool) -> list[int]:
        """Ids of guarded text between special tokens, which may be defined to swallow white space beside them."""
        text = text.lstrip() if strip_left else text
        text = text.rstrip() if strip_right else text
        return _ids(self._plain_backend, unguard(text), False)


def unguard(text: str) -> str:
    """The text that a person would read: `Tokenizer.guard` undone."""
    return MARKED.sub(lambda found: MARK if found[1] == "0" else "", text)


def _ids(backend: Backend, text: str, add_special_tokens: bool) -> list[int]:
    try:
        return list(backend.encode(text, add_special_tokens=add_special_tokens).ids)
    except TypeError as error:
        raise InvalidRequest("the text holds a lone surrogate, which is not valid Unicode") from error


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Finds words left to right, the longest first; finds nothing when there are none."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _byte_table(backend: Backend, added: dict[int, str]) -> tuple[bytes, ...]:
    """Bytes by id for the whole vocabulary."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    spell = _spelling(backend)
    table = [b""] * (1 + max(vocabulary.values(), default=-1))
    for token, token_id in vocabulary.items():
        table[token_id] = added[token_id].encode() if token_id in added else spell(token)
    return tuple(table)


def _spelling(backend: Backend) -> Callable[[str], bytes]:
    """How this tokenizer spells bytes as characters, told by its decoder."""
    decoder = repr(backend.decoder)
    if "ByteLevel" in decoder:
        to_latin1 = {ord(char): byte for byte, char in enumerate(byte_characters())}
        return lambda token: _latin1(token.translate(to_latin1))
    if "ByteFallback" in decoder:
        return _sentencepiece_bytes
    raise ConfigError("tokenizer.json is neither byte-level nor does it fall back to bytes")


def _latin1(token: str) -> bytes:
    try:
        return token.encode("latin-1")
    except UnicodeEncodeError as error:
        raise ConfigError(f"token {token!r} is not spelled in byte-level characters") from error


def _sentencepiece_bytes(token: str) -> bytes:
    if found := BYTE_PIECE.match(token):
        return bytes([int(found[1], 16)])
    return token.replace(SPACE_PIECE, " ").encode()


def byte_characters() -> str:
    """The 256 characters by which byte-level BPE spells the bytes 0 to 255.

    Printable Latin-1 stands for itself; the other bytes take the characters from U+0100 on, in order.
    Source: GPT-2 (Radford et al., 2019).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))
