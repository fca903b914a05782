"""One choice from token reports to text: log, detokeniser and stop matcher in a row. No I/O, no clock of its own."""

from collections.abc import Sequence

from libs.contracts.messages import ChoiceEpoch, ChoiceLog
from libs.contracts.row_words import LENGTH, STOP
from libs.text.detokenize import Detokenizer, TokenBytes
from libs.text.stops import StopMatcher
from services.gateway.notes import Note
from services.gateway.reading import Reading
from services.gateway.repair import Repair
from services.gateway.shapes import Delta
from services.gateway.token_log import TokenLog

FIRST_EPOCH = 1


class Choice:
    """Mutable, owned by one Stream. `reason` is set when the choice has ended and all its text is certain."""

    def __init__(self, index: int, tokenizer: TokenBytes, reading: Reading) -> None:
        self.index = index
        self.log = TokenLog(reading.max_tokens, is_noted=reading.is_noted)
        self.reason = ""
        self.stopped_at: int | None = None  # position of the token that completed a stop string
        self.repair: Repair | None = None  # from the moment that somebody can be asked
        self.epoch = FIRST_EPOCH  # of the attempt that is listened to
        self.deaths, self.died_at = 0, 0  # of workers that were computing it, as the scheduler told; kept for the next
        self.last_token_s: float | None = None
        self._reading = reading
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=reading.skips_special)
        self._matcher = StopMatcher(reading.stops, reading.min_tokens, include_stop=reading.shows_stop)
        self._text: list[str] = []
        self._taken_tokens = 0
        self._told_reason = False

    @property
    def tokens(self) -> int:
        return len(self.log.ids)

    @property
    def shown_tokens(self) -> int:
        """Those of the answer."""
        return 0 if self._reading.is_silent else self.tokens

    @property
    def told(self) -> bool:
        """Whether everything has been taken."""
        return self._told_reason

    def add(self, position: int, ids: Sequence[int], end: str, notes: Sequence[Note] = ()) -> int:
        """Take a report of tokens. Returns how many became part of the answer. Raises ExactnessViolation."""
        before = self.tokens
        if self.log.add(position, ids, end, notes):
            self._read_from(before)
        self._close()
        return self.tokens - before

    def finish(self, total: int, end: str) -> None:
        """Learn the end from the scheduler; tokens may still be missing."""
        self.log.finish(total, end)
        if self.log.has_gap and self.repair:
            self.repair.hurry()
        self._close()

    def raise_epoch(self, raised: ChoiceEpoch) -> None:
        """From now on only this attempt, or a later one, is listened to."""
        self.epoch = max(self.epoch, raised.epoch)
        self.deaths, self.died_at = raised.deaths, raised.died_at

    def take(self) -> Delta | None:
        """What has become certain since the last time, or None when there is nothing to tell a client."""
        has_ids = self._reading.tells_ids and not self._reading.is_silent and self.tokens > self._taken_tokens
        if self._told_reason or not (self._text or self.reason or has_ids):
            return None
        text = "".join(self._text)
        self._text.clear()
        first, self._taken_tokens = self._taken_tokens, self.tokens
        self._told_reason = bool(self.reason)
        if self._reading.is_silent:
            return Delta(self.index, "", (), LENGTH if self.reason else None)
        return Delta(self.index, text, self.log.ids[first:], self.reason or None, self.log.notes[first:])

    def to_log(self, *, is_open: bool = False) -> ChoiceLog:
        """With `is_open` without its last token and its end, so that it is computed again."""
        ids, end = (self.log.ids[:-1], "") if is_open else (self.log.ids, self.log.end)
        return ChoiceLog(self.index, tuple(ids), end, self.epoch, self.deaths, self.died_at)

    def _read_from(self, position: int) -> None:
        """Turn the ids from `position` on into text, up to a stop string."""
        ids = self.log.ids
        # The token that ended the choice by itself, an end of turn or a stop id, is counted but never shown.
        shown = len(ids) - 1 if self.log.end == STOP and not self._reading.shows_stop else len(ids)
        for place in range(position, shown):
            if text := self._detokenizer.push_one(ids[place]):
                self._emit(place, text)
                if self.stopped_at is not None:
                    return

    def _emit(self, position: int, text: str) -> None:
        if certain := self._matcher.push(position, text):
            self._text.append(certain)
        if self._matcher.match is not None:
            self.stopped_at = position
            self.log.cut(position + 1, STOP)

    def _close(self) -> None:
        if self.reason or not self.log.end:
            return
        if self.stopped_at is None and (tail := self._detokenizer.finish()):
            self._emit(self.tokens - 1, tail)
        if self.stopped_at is None and (held := self._matcher.finish()):
            self._text.append(held)
        self.reason = self.log.end
