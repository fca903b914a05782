"""The tokens of one choice in the order of their positions, whatever way and however often they arrive. Pure."""

from collections.abc import Sequence

from libs.contracts.errors import ExactnessViolation
from services.gateway.notes import Note


class TokenLog:
    """Reports of tokens go in, a gapless list comes out. Mutable, owned by one choice.

    `ids` has no gap. `end` is set once every token before the end is here. Two reports of one position must be equal;
    anything else would splice two different answers, so it raises ExactnessViolation and changes nothing that counts.
    """

    def __init__(self, max_tokens: int, *, is_noted: bool = False) -> None:
        """With `is_noted` it keeps a note of each token, too."""
        self.ids: list[int] = []
        self.notes: list[Note | None] = []
        self._max_tokens, self._is_noted = max_tokens, is_noted
        self._ahead: dict[int, tuple[int, Note | None]] = {}  # by position, beyond the first gap
        self._total: int | None = None  # tokens of the whole choice, once its end is known
        self._end = ""
        self._cut = False

    @property
    def end(self) -> str:
        """Why the choice ended; "" while it is open or a token before the end is missing."""
        return self._end if self._total == len(self.ids) else ""

    @property
    def has_gap(self) -> bool:
        """Whether a token is known to exist that has not arrived."""
        return bool(self._ahead) or (self._total is not None and self._total > len(self.ids))

    def add(self, position: int, ids: Sequence[int], end: str = "", notes: Sequence[Note] = ()) -> int:
        """Take a report of tokens from `position` on; `end` says that the last one ended the choice.

        Returns how many ids became part of `ids`.
        """
        if self._cut:
            return 0
        before = len(self.ids)
        if end:
            self.finish(position + len(ids), end)
        if position + len(ids) > (self._max_tokens if self._total is None else self._total):
            raise ExactnessViolation(f"a token at position {position + len(ids) - 1} lies behind the end")
        if position == before and not self._ahead:
            self.ids.extend(ids)
            if self._is_noted:
                self.notes.extend(notes or [None] * len(ids))
        else:
            self._merge(position, ids, notes or [None] * len(ids))
        return len(self.ids) - before

    def finish(self, total: int, end: str) -> None:
        """Learn that the choice has `total` tokens and why it ended there."""
        if self._cut:
            return
        if self._total is None:
            if total < len(self.ids) or any(position >= total for position in self._ahead):
                raise ExactnessViolation(f"an end after {total} tokens, but later ones were reported")
            self._total, self._end = total, end
        elif (self._total, self._end) != (total, end):
            raise ExactnessViolation(f"ended by {self._end} after {self._total} tokens, and by {end} after {total}")

    def cut(self, total: int, end: str) -> None:
        """End here, by the gateway's own decision: it wins over all later reports."""
        assert total <= len(self.ids), (total, len(self.ids))
        del self.ids[total:], self.notes[total:]
        self._ahead.clear()
        self._total, self._end, self._cut = total, end, True

    def _merge(self, position: int, ids: Sequence[int], notes: Sequence[Note | None]) -> None:
        for place, (token_id, note) in enumerate(zip(ids, notes, strict=True), position):
            known = self.ids[place] if place < len(self.ids) else self._ahead.setdefault(place, (token_id, note))[0]
            if known != token_id:
                raise ExactnessViolation(f"position {place} was reported as {known} and as {token_id}")
        while self._ahead and (following := self._ahead.pop(len(self.ids), None)) is not None:
            self.ids.append(following[0])
            if self._is_noted:
                self.notes.append(following[1])
