"""Log-probabilities in the shapes of OpenAI's API, and vLLM's of a prompt. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.gateway.notes import Note, TokenNames

Notes = Sequence[Note | None]


@dataclass(frozen=True, slots=True)
class Echo:
    """The prompt, told before each choice's own text; without notes where no log-probabilities are wanted."""

    text: str = ""
    ids: tuple[int, ...] = ()
    notes: tuple[Note | None, ...] = ()  # None of the first id, before which there is nothing


NO_ECHO: Final = Echo()


def chat_entries(names: TokenNames, ids: Sequence[int], notes: Notes) -> list[dict[str, Any]]:
    """One entry a token."""
    return [
        _entry(names, token_id, note.logprob)
        | {"top_logprobs": [_entry(names, *top) for top in zip(note.top_ids, note.top_logprobs, strict=True)]}
        for token_id, note in zip(ids, notes, strict=True)
        if note is not None
    ]


def _entry(names: TokenNames, token_id: int, logprob: float) -> dict[str, Any]:
    return {"token": names.name(token_id), "logprob": logprob, "bytes": names.bytes(token_id)}


class CompletionLists:
    """The four lists of completions, piece by piece; offsets go on from piece to piece of a choice."""

    def __init__(self, names: TokenNames, echo: Echo) -> None:
        self._names, self._echo = names, echo
        self._offsets = defaultdict[int, int](int)  # by choice
        self._begun: set[int] = set()

    def piece(self, choice: int, ids: Sequence[int], notes: Notes) -> dict[str, Any]:
        """What is new of a choice; its first piece begins with the prompt where that is echoed."""
        if choice not in self._begun:
            self._begun.add(choice)
            ids, notes = (*self._echo.ids, *ids), (*self._echo.notes, *notes)
        tokens = [self._names.name(token_id) for token_id in ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offsets[choice])
            self._offsets[choice] += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [None if note is None else note.logprob for note in notes],
            "top_logprobs": [
                None if note is None else self._tops(token, note) for token, note in zip(tokens, notes, strict=True)
            ],
            "text_offset": offsets,
        }

    def _tops(self, token: str, note: Note) -> dict[str, float]:
        """The likeliest by name, and the token itself; of two with one name the likelier."""
        tops: dict[str, float] = {}
        for token_id, logprob in zip(note.top_ids, note.top_logprobs, strict=True):
            tops.setdefault(self._names.name(token_id), logprob)
        tops.setdefault(token, note.logprob)
        return tops


def prompt_entries(names: TokenNames, ids: Sequence[int], notes: Notes) -> list[dict[str, Any] | None]:
    """Null for the first id, then by id the log-probability, rank and text of what is there and of the likeliest."""
    entries: list[dict[str, Any] | None] = []
    for token_id, note in zip(ids, notes, strict=True):
        if note is None:
            entries.append(None)
            continue
        found = {token_id: (note.logprob, note.rank)}
        for rank, (top_id, logprob) in enumerate(zip(note.top_ids, note.top_logprobs, strict=True), 1):
            found.setdefault(top_id, (logprob, rank))
        entries.append(
            {
                str(id): {"logprob": logprob, "rank": rank, "decoded_token": names.name(id)}
                for id, (logprob, rank) in found.items()
            }
        )
    return entries
