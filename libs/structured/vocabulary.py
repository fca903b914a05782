"""A model's tokens as the grammar library sees them: the bytes that this server's own detokenizer gives."""

from collections.abc import Collection
from pathlib import Path

from llguidance import LLTokenizer

from libs.contracts.errors import ConfigError
from libs.text.tokenizer import Tokenizer

MARK = "\x02"  # a character that no tokenizer joins with what follows


class _Tokens:
    """The attributes and the call that LLTokenizer wants of a tokenizer that is not a tokenizer.json."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, eos_id: int, size: int) -> None:
        self.eos_token_id = eos_id
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(size)]
        self.special_token_ids = [
            token_id for token_id in range(tokenizer.vocab_size) if tokenizer.is_special(token_id)
        ]
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        """Ids of exactly these bytes: some tokenizers put a blank before a text, and what follows is no beginning."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if self._bytes_of(ids) == text.encode():
            return ids
        marked = self._tokenizer.encode(MARK + text, add_special_tokens=False)
        behind = (marked[start:] for start in (1, 2))  # of the mark, perhaps with a blank in front
        return next((rest for rest in behind if self._bytes_of(rest) == text.encode()), ids)

    def _bytes_of(self, ids: list[int]) -> bytes:
        return b"".join(map(self._tokenizer.token_bytes, ids))


def vocabulary_of(model_dir: Path, eos_ids: Collection[int], size: int) -> LLTokenizer:
    """That of the tokenizer in a model's directory. Takes about half a second. Raises as open_vocabulary does."""
    return open_vocabulary(Tokenizer.from_dir(model_dir), eos_ids, size)


def open_vocabulary(tokenizer: Tokenizer, eos_ids: Collection[int], size: int) -> LLTokenizer:
    """The vocabulary for matchers of one model; a mask of it has a bit for each of `size` ids.

    `size` is the rows of the model's head: ids beyond the tokenizer's stand for nothing and are never allowed.
    `eos_ids` are what a worker takes for the end of an answer. Takes about 0.1 s.

    Raises: ConfigError when no id ends an answer: nothing could say that it is complete.
    """
    ends = sorted(token_id for token_id in eos_ids if token_id < size)
    if not ends:
        raise ConfigError("the model declares no end of sequence")
    # mypy: the library's stub names its own class, of which it needs these attributes alone
    return LLTokenizer(_Tokens(tokenizer, ends[0], size), eos_token=ends)  # type: ignore[arg-type]
