"""One request's life in the gateway: sent → accepted → streaming → complete, or failed at any point.

Events come in from the hub, synchronously; deltas go out to the one response that awaits them. No I/O.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from enum import Enum
from math import inf

from libs.contracts.errors import HeadraceError, MalformedMessage, NoTokenAllowed, NumericalError, Unavailable
from libs.contracts.messages import (
    Accepted,
    Delivered,
    EpochRaised,
    Finished,
    FrameRow,
    RequestLog,
    Resend,
    Resent,
    Scored,
    ScoresQuery,
    StopAt,
)
from libs.contracts.row_words import DEAD_END, ERROR
from libs.text.detokenize import TokenBytes
from services.gateway.choice import Choice
from services.gateway.crowd import Standing
from services.gateway.notes import Note, notes_of
from services.gateway.observe import Observer
from services.gateway.repair import Repair
from services.gateway.scoring import Scoring
from services.gateway.shapes import Delta, Usage
from services.gateway.validate import ValidRequest
from services.gateway.wire import Ticket

LOST_S = 5.0
NEVER_CAME_S = 40.0  # a pull of the queue that was lost is renewed within 35 s


class ClientGone(Exception):
    """Nobody reads the response any more."""


class Phase(Enum):
    SENT = "sent"
    ACCEPTED = "accepted"
    STREAMING = "streaming"
    COMPLETE = "complete"
    FAILED = "failed"


class Stream:
    """Mutable, owned by the hub. One task at a time reads `deltas`."""

    def __init__(self, ticket: Ticket, request: ValidRequest, tokenizer: TokenBytes, observer: Observer) -> None:
        self.ticket = ticket
        self.request, self.tokenizer = request, tokenizer
        self.observer = observer
        self.phase = Phase.SENT
        self.cell = ""  # of the first message that names one; a frame may overtake Accepted
        self.accepted: Accepted | None = None
        self.cached_tokens = 0
        self.settled = False  # the scheduler has confirmed that it forgot the request
        self.scoring = Scoring() if request.params.prompt_logprobs >= 0 else None
        self.choices = tuple(Choice(index, tokenizer, request.reading) for index in range(request.choices))
        self._doubted = False
        self._unknown_since_s: float | None = None  # the scheduler does not know this request
        self._failure: HeadraceError | ClientGone | None = None
        self._outgoing: list[StopAt | Delivered] = []
        self._stops: list[tuple[Choice, int]] = []  # at a position, of which the scheduler is still to be told
        self._wake = asyncio.Event()

    @property
    def request_id(self) -> str:
        return self.ticket.request_id

    @property
    def over(self) -> bool:
        """Whether nothing more is expected from the services behind."""
        return self.phase in (Phase.COMPLETE, Phase.FAILED)

    @property
    def is_waiting(self) -> bool:
        """Whether nobody is known to compute it yet."""
        return self.phase in (Phase.SENT, Phase.ACCEPTED)

    @property
    def epoch(self) -> int:
        """The newest attempt at any of its choices."""
        return max(choice.epoch for choice in self.choices)

    @property
    def standing(self) -> Standing:
        """Its place among those who wait."""
        due_s = self.ticket.deadline_s if self.ticket.is_timed else inf
        return Standing(self.ticket.tenant, self.request.priority, due_s)

    @property
    def usage(self) -> Usage:
        prompt_tokens = self.accepted.prompt_tokens if self.accepted else 0
        return Usage(prompt_tokens, sum(choice.shown_tokens for choice in self.choices), self.cached_tokens)

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """Empty unless the request asked for them."""
        return self.accepted.prompt_ids if self.accepted else ()

    def on_accepted(self, accepted: Accepted, now_s: float) -> None:
        if self.accepted is None:
            self.accepted = accepted
            self.observer.accepted(now_s)
            self._in_cell(accepted.cell, now_s)
            if self.phase is Phase.SENT:
                self.phase = Phase.ACCEPTED
            self._notify()

    def on_row(self, row: FrameRow, cell: str, now_s: float) -> None:
        """Take tokens of this epoch or a later one from a worker. Raises ExactnessViolation, MalformedMessage."""
        if self.over:
            return
        if row.choice >= len(self.choices):
            raise MalformedMessage(f"a token of choice {row.choice}, which was not asked for")
        self.choices[row.choice].epoch = row.epoch
        self._in_cell(cell, now_s)
        if row.traceparent and row.choice + 1 == len(self.choices):  # the one that computes the prompt speaks for all
            self.observer.residence(row.traceparent)
        if self.phase is not Phase.STREAMING:
            self.cached_tokens = row.cached_tokens
        notes = notes_of(row.logprobs, row.top_ids, row.top_logprobs) if row.logprobs else ()
        self._add(self.choices[row.choice], row.position, row.ids, row.end, now_s, notes)

    def is_stale(self, told: FrameRow | Finished) -> bool:
        """Whether it is of an attempt that is not listened to any more."""
        return told.choice < len(self.choices) and told.epoch < self.choices[told.choice].epoch

    def on_epoch_raised(self, raised: EpochRaised) -> None:
        for choice in raised.choices:
            if choice.choice < len(self.choices):
                self.choices[choice.choice].raise_epoch(choice)

    def on_resent(self, choice: Choice, resent: Resent | None, now_s: float) -> None:
        """Take the scheduler's answer to a Resend, or that there was none. Raises Unavailable for a lost request."""
        if self.over:
            return
        if resent is not None:
            self._check_known(resent.known, now_s)
        if resent is not None and resent.known and (resent.ids or resent.end):
            notes = notes_of(resent.logprobs, resent.top_ids, resent.top_logprobs)
            self._add(choice, resent.position, resent.ids, resent.end, now_s, notes)
        if choice.repair:
            choice.repair.answered(now_s, has_gap=choice.log.has_gap)

    def on_finished(self, finished: Finished, now_s: float) -> None:
        if self.over or finished.choice >= len(self.choices):
            return
        self._in_cell(finished.cell, now_s)
        self.choices[finished.choice].finish(finished.total, finished.reason)
        self._progress()

    def scores_query(self) -> ScoresQuery | None:
        """What to ask the scheduler of the prompt, now that a token is here; to be answered by on_scored."""
        is_begun = any(choice.tokens or choice.reason for choice in self.choices)
        if self.scoring is None or self.over or self._is_scored or not (self.cell and is_begun):
            return None
        return ScoresQuery(self.request_id, self.scoring.next, epoch=self.epoch)

    def on_scored(self, scored: Scored | None, now_s: float) -> None:
        """Take the scheduler's answer, or that there was none. Raises Unavailable for a lost request."""
        if self.scoring is None or self.over:
            return
        if scored is not None:
            self._check_known(scored.known, now_s)
        self.scoring.add(scored.scores[0] if scored is not None and scored.scores else None)
        if self._is_scored:
            self._progress()
            self._wake.set()

    def fail(self, error: HeadraceError | ClientGone) -> None:
        """End the request for its client. A complete one stays complete if its reader has all it needs."""
        if self.phase is Phase.FAILED or (self.phase is Phase.COMPLETE and self.accepted is not None):
            return
        self.phase = Phase.FAILED
        self._failure = error
        self._wake.set()

    def doubt(self) -> None:
        """The scheduler may have dropped this request: ask soon, and believe it when it says so."""
        self._doubted, self._unknown_since_s = True, None
        for choice in self.choices:
            if choice.repair:
                choice.repair.hurry()

    def repairs(self, now_s: float) -> Iterator[tuple[Choice, Resend]]:
        """What to ask the scheduler now; each is to be answered by on_resent."""
        if self.over:
            return
        for choice in self.choices:
            if choice.repair and not choice.reason and choice.repair.due(now_s, has_gap=choice.log.has_gap):
                choice.repair.asked()
                yield choice, Resend(self.request_id, choice.index, choice.tokens, epoch=choice.epoch)

    def take_messages(self) -> list[StopAt | Delivered]:
        """What the scheduler must be told since the last time, in this order."""
        messages, self._outgoing = self._outgoing, []
        return messages

    def to_log(self) -> RequestLog:
        logs = tuple(choice.to_log(is_open=not self._is_scored) for choice in self.choices)
        return RequestLog(self.ticket.request_id, True, logs)

    async def deltas(self) -> AsyncIterator[Delta]:
        """Text as it becomes certain, from the moment of acceptance to each choice's last delta.

        A reader that is slower than the tokens gets several of them in one delta. Raises the HeadraceError that the
        request failed with, or ClientGone.
        """
        while not all(choice.told for choice in self.choices):
            await self._wake.wait()
            self._wake.clear()
            if self._failure is not None:
                raise self._failure
            if self.accepted is not None and self._is_scored:
                for choice in self.choices:
                    if delta := choice.take():
                        yield delta

    @property
    def _is_scored(self) -> bool:
        """All that is wanted of the prompt is here."""
        if self.scoring is None:
            return True
        return self.accepted is not None and self.scoring.is_whole(self.accepted.prompt_tokens)

    def _in_cell(self, cell: str, now_s: float) -> None:
        if not self.cell:
            self.cell = cell
            for choice in self.choices:
                choice.repair = Repair(now_s)

    def _check_known(self, known: bool, now_s: float) -> None:
        """A request that was being computed, and stays unknown for longer than a restart takes, will not come back.

        Before its first token it may just be on its way to the scheduler, and is given longer, unless there is reason
        to doubt that.
        """
        is_due = self._doubted or self.phase is Phase.STREAMING
        if known:
            self._unknown_since_s = None
        elif self._unknown_since_s is None:
            self._unknown_since_s = now_s
        elif now_s - self._unknown_since_s >= (LOST_S if is_due else NEVER_CAME_S):
            raise Unavailable("the request was lost, try again")

    def _add(
        self,
        choice: Choice,
        position: int,
        ids: tuple[int, ...],
        end: str,
        now_s: float,
        notes: Sequence[Note],
    ) -> None:
        was_stopped = choice.stopped_at is not None
        tokens = choice.add(position, ids, end, notes)
        if tokens:
            self.phase = Phase.STREAMING
            self.observer.tokens(tokens, now_s, choice.last_token_s)
            choice.last_token_s = now_s
            if choice.repair:
                choice.repair.heard(now_s)
        if choice.stopped_at is not None and not was_stopped:
            self._stops.append((choice, choice.stopped_at))
        self._progress()

    def _progress(self) -> None:
        """Complete the request when every choice has ended, and let its reader go on.

        A stop is told once the prompt's scores are here: who has nothing left to compute will not compute them again.
        """
        if self._stops and self._is_scored:
            self._outgoing += [StopAt(self.request_id, c.index, position, epoch=c.epoch) for c, position in self._stops]
            self._stops = []
        reasons = {choice.reason for choice in self.choices}
        if "" not in reasons and (self._is_scored or reasons & {ERROR, DEAD_END}):
            totals = tuple(choice.tokens for choice in self.choices)
            self._outgoing.append(Delivered(self.request_id, totals, epoch=self.epoch))
            if ERROR in reasons:
                self.fail(NumericalError("the model's output was not finite"))
            elif DEAD_END in reasons:
                self.fail(NoTokenAllowed("the request's parameters ban every token that could follow"))
            else:
                self.phase = Phase.COMPLETE
        self._notify()

    def _notify(self) -> None:
        if self.request.stream or self.over:
            self._wake.set()
