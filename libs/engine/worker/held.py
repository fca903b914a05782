"""One resident as its worker holds it: token log, cursor, blocks, and the judgement of its ends. Pure.

Words: `to_commit` = known ids − cursor; a resident with one token to commit advances by itself. `position` = generated
tokens known so far, which is also the position that the next sample fills.
"""

from collections.abc import Sequence
from dataclasses import replace

from libs.contracts.messages import Grammar, HeldSequence, Resident, RowResult
from libs.contracts.row_words import DEAD_END, ERROR, LENGTH, STOP
from libs.contracts.token_rules import are_sound
from libs.engine.adjustment import Adjustment
from libs.engine.rows import Sampled, SampleSpec, StepRow
from libs.engine.worker.ports import Constraint, FillCounts, Grammars
from libs.engine.worker.shaping import Shaping, shaping_of

NO_IDS: Sequence[int] = ()
NO_FORKS: tuple[SampleSpec, ...] = ()


class Held:
    """Mutable; owned by Residents."""

    __slots__ = (
        "_adjustment",
        "_constraint",
        "_ending_ids",
        "_shaping",
        "cursor",
        "end",
        "filled_tokens",
        "ids",
        "resident",
        "table",
        "until",
        "wait",
        "wait_ns",
    )

    def __init__(self, resident: Resident, eos_ids: frozenset[int]) -> None:
        self.resident = resident
        self.ids = list(resident.ids)
        self.cursor = resident.cursor
        self.table = list(resident.block_table)
        self.until = resident.until
        self.end = ""
        self.filled_tokens = 0  # tokens below the cursor whose blocks were seen filled
        self.wait = ""  # the reason of the wait under way
        self.wait_ns = 0  # when it began
        params = resident.params
        stops = frozenset(params.stop_token_ids)
        # A grammar lets an end of sequence follow where the answer is complete, and nothing may follow that.
        self._ending_ids = stops if params.ignore_eos and params.grammar is None else stops | eos_ids
        self._shaping: Shaping | None = None
        self._constraint: Constraint | None = None
        self._adjustment: Adjustment | None = None

    def prepare(self, vocab_size: int, grammars: Grammars | None) -> None:
        """Make ready what the parameters do to logits; an id that the model does not have ends it."""
        resident, params = self.resident, self.resident.params
        if max(resident.ids) >= vocab_size or not are_sound(params, vocab_size):
            self.end = ERROR
            return
        self._shaping = shaping_of(params, self._ending_ids, self.ids, resident.prompt_tokens, vocab_size)
        self._adjustment = None if self._shaping is None else self._shaping.adjustment
        if params.grammar is not None:
            self._constrain(params.grammar, grammars)

    def _constrain(self, grammar: Grammar, grammars: Grammars | None) -> None:
        if grammars is None:
            self.end = DEAD_END
            return
        self._constraint = grammars.open(grammar, self.ids[self.resident.prompt_tokens :])
        self._adjustment = self._adjustment or Adjustment()
        self._adjustment.mask_W = self._constraint.mask_W
        self._adjustment.mask_ready = self._constraint.mask_ready

    @property
    def awaits_grammar(self) -> bool:
        """No token can be drawn yet."""
        return self._constraint is not None and not self._constraint.is_open

    @property
    def to_commit(self) -> int:
        return len(self.ids) - self.cursor

    @property
    def position(self) -> int:
        return len(self.ids) - self.resident.prompt_tokens

    @property
    def is_stopped(self) -> bool:
        """A no-op until it is removed, or until a raised `until` lets it go on."""
        return self.end != "" or self.position >= self.until

    def catch_up(self, fills: FillCounts, block_tokens: int) -> bool:
        """Whether every token below the cursor is in the pool. Looks only at what it has not yet seen filled."""
        while self.filled_tokens < self.cursor:
            index = self.filled_tokens // block_tokens
            reach = min(block_tokens * (index + 1), self.cursor)
            if fills[self.table[index]] < reach - block_tokens * index:
                return False
            self.filled_tokens = reach
        return True

    def seek(self, fills: FillCounts, block_tokens: int) -> None:
        """Begin where the fill counts of the table end, at most at the resident's `reach`."""
        while self.cursor < self.resident.reach:
            index = self.cursor // block_tokens
            filled_to = min(block_tokens * index + int(fills[self.table[index]]), self.resident.reach)
            if filled_to <= self.cursor:
                return
            self.cursor = filled_to

    def row(self, tokens: int) -> StepRow:
        """The next `tokens` tokens as a row; it samples when they are all that is known, and so do its forks."""
        end, resident, scored_ids, forks = self.cursor + tokens, self.resident, NO_IDS, NO_FORKS
        if resident.params.prompt_logprobs >= 0:
            scored_ids = self.ids[self.cursor + 1 : min(end + 1, resident.prompt_tokens)]
        sample = self._sample() if end == len(self.ids) else None
        if sample is not None and resident.forks and not self.position:
            forks = tuple(replace(sample, choice=fork.choice) for fork in resident.forks)
        ids, tops = self.ids[self.cursor : end], resident.params.prompt_logprobs
        return StepRow(ids, self.cursor, self.table, sample, forks, scored_ids, tops)

    def _sample(self) -> SampleSpec:
        resident = self.resident
        banned = () if self._shaping is None else self._shaping.banned_ids(self.ids)
        if self._constraint is not None:
            self._constraint.want()
        return SampleSpec(
            resident.params, self.position, resident.choice, banned, resident.candidates, self._adjustment
        )

    def commit(self, row: StepRow, sampled: Sampled | None) -> RowResult:
        """Take in what the step did with a row.

        Not-finite logits end the sequence where it was: its KV is not to be trusted. One that was to tell candidates
        has stopped: which of them follows is not its to say.
        """
        position, drawn = self.position, sampled
        if drawn is not None and drawn.is_nan:
            self.end, drawn = ERROR, None
        else:
            self.cursor += len(row.token_ids)
        if row.sample is None:
            return _scored(self.result(position), sampled)
        if drawn is not None and self.resident.candidates:
            told = tuple(replace(one, is_end=one.token_id in self._ending_ids) for one in drawn.candidates)
            return replace(self.result(position), at_until=True, candidates=told)
        if drawn is not None and drawn.token_id < 0:
            self.end, drawn = DEAD_END, None
        if drawn is not None:
            self.ids.append(drawn.token_id)
            for growing in (self._shaping, self._constraint):
                if growing is not None:
                    growing.add(drawn.token_id)
            self.end = self.judge(drawn.token_id, self.position)
        return _scored(self.result(position, drawn), sampled)

    def result(self, position: int, drawn: Sampled | None = None) -> RowResult:
        resident = self.resident
        ids = () if drawn is None else (drawn.token_id,)
        logprobs = () if drawn is None or drawn.logprob is None else (drawn.logprob,)
        at_until = self.position >= self.until
        row = RowResult(resident.sequence, resident.epoch, self.cursor, position, ids, logprobs, self.end, at_until)
        if drawn is None or not drawn.top_ids:
            return row
        return replace(row, top_ids=drawn.top_ids, top_logprobs=drawn.top_logprobs)

    def standing(self) -> RowResult:
        """Where it stands, and every id that the order's author did not know."""
        resident = self.resident
        known = min(len(resident.ids), len(self.ids))
        row = self.result(known - resident.prompt_tokens)
        return replace(row, ids=tuple(self.ids[known:]))

    def goes_on_as(self, resident: Resident) -> bool:
        """Whether `resident` is what is held here, in the same blocks, with or without more of them."""
        known, table = self.resident, self.table
        is_same = (known.request_id, known.choice, known.epoch) == (
            resident.request_id,
            resident.choice,
            resident.epoch,
        )
        is_same = is_same and len(resident.ids) <= len(self.ids)  # else its author has chosen tokens that we told
        return is_same and resident.block_table[: len(table)] == tuple(table)

    def follow(self, resident: Resident) -> tuple[int, ...]:
        """Go on under a Snapshot that names this resident again; the result is the blocks it grants beyond ours."""
        fresh = resident.block_table[len(self.table) :]
        self.resident, self.until = resident, resident.until
        self.wait = ""  # what it waits for is told again: who sent this may not know
        self.table.extend(fresh)
        return fresh

    def to_wire(self) -> HeldSequence:
        resident = self.resident
        return HeldSequence(
            resident.sequence,
            resident.request_id,
            resident.choice,
            resident.epoch,
            tuple(self.ids),
            self.cursor,
            resident.prompt_tokens,
            tuple(self.table),
            self.end,
            self.until,
            resident.cached_tokens,
        )

    def judge(self, token_id: int, generated: int) -> str:
        """How the last of so many tokens ends it, or "". min_tokens needs no look: until then no ending id is drawn."""
        if token_id in self._ending_ids:
            return STOP
        return LENGTH if generated >= self.resident.params.max_tokens else ""


def _scored(result: RowResult, sampled: Sampled | None) -> RowResult:
    """With what the step told of the prompt's ids, which is nothing for most."""
    if sampled is None or sampled.scores is None:
        return result
    return replace(result, scores=(sampled.scores,))
