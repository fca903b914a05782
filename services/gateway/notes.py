"""What is told of a token beside its id: its log-probability, and the likeliest ids in its place. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from libs.text.detokenize import TokenBytes


class Note(NamedTuple):
    logprob: float
    top_ids: tuple[int, ...] = ()  # best first
    top_logprobs: tuple[float, ...] = ()
    rank: int = 0  # of the id itself, 1 for the likeliest; 0 where it is not told

    def first(self, tops: int) -> "Note":
        """With at most so many of the likeliest."""
        return self._replace(top_ids=self.top_ids[:tops], top_logprobs=self.top_logprobs[:tops])


def notes_of(
    logprobs: Sequence[float], top_ids: Sequence[int], top_logprobs: Sequence[float], ranks: Sequence[int] = ()
) -> list[Note]:
    """One for each log-probability; of the others there are equally many for each."""
    tops = len(top_ids) // len(logprobs) if logprobs else 0
    return [
        Note(
            logprob,
            tuple(top_ids[tops * at : tops * (at + 1)]),
            tuple(top_logprobs[tops * at : tops * (at + 1)]),
            ranks[at] if ranks else 0,
        )
        for at, logprob in enumerate(logprobs)
    ]


class TokenNames:
    """How tokens are called in an answer."""

    def __init__(self, tokenizer: TokenBytes, *, by_id: bool = False) -> None:
        self._tokenizer, self._by_id = tokenizer, by_id

    def name(self, token_id: int) -> str:
        """Its text; bytes that are no text by themselves are spelled as OpenAI does."""
        if self._by_id:
            return f"token_id:{token_id}"
        raw = self._tokenizer.token_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def bytes(self, token_id: int) -> list[int] | None:
        """None for a control token, which has none in the answer's text."""
        return None if self._tokenizer.is_special(token_id) else list(self._tokenizer.token_bytes(token_id))
