"""One choice of one request, in the words of the protocol a *sequence*: all that is known of it, and where it stands.

asking ─answered→ waiting ─admitted→ prefilling ─first token→ decoding ─end→ ended ─Delivered→ forgotten
   ↑                 ↑─────────────── preempted ──────────────────┤
   └───────────────────────── worker lost ────────────────────────┘
A choice begins in `waiting`; in `asking` when an older term may have begun it. One with a `leader` waits for that one's
first token instead of in the queue (forking.py), and goes from there to decoding.
Any of them may be failed (kept until its gateway knows) or dropped (cancelled: only its blocks are still coming back).
A choice that left its worker's order is `leaving` until the worker has confirmed it; no block moves before.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from libs.contracts.messages import BlockCopy, Fork, Resident, SamplingParams, Sequence, Swap
from services.scheduler.beam import CANDIDATES_PER_BEAM, Beam
from services.scheduler.prefix import Key
from services.scheduler.reasons import WAITS, Reason
from services.scheduler.score_log import ScoreLog
from services.scheduler.share import Share
from services.scheduler.swap_cost import Costs
from services.scheduler.swapped import SwapOut, Swapped
from services.scheduler.tail import Tail


class Phase(StrEnum):
    ASKING = "asking"
    WAITING = "waiting"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    ENDED = "ended"
    FAILED = "failed"
    DROPPED = "dropped"


UNOWNED = 1 << 62  # tokens

OPEN = frozenset({Phase.ASKING, Phase.WAITING, Phase.PREFILLING, Phase.DECODING})


Noted = tuple["Choice", Reason]


@dataclass(slots=True, eq=False)
class Choice:
    """Mutable; owned by State. Counts are tokens unless named otherwise."""

    handle: int  # names the sequence to workers; grows with arrival, so it is also the age
    sequence: Sequence  # as it came
    traceparent: str
    ids: list[int]  # all known ids, prompt first
    params: SamplingParams  # max_tokens as far as context and pool allow
    since_s: float
    epoch: int  # of the present attempt
    index: int = 0  # among the choices of its request
    logprobs: ScoreLog = field(default_factory=ScoreLog)  # of its tokens, where they are asked for
    prompt_scores: ScoreLog | None = None  # of the prompt's ids but the first, its request's, where they are asked for
    phase: Phase = Phase.WAITING
    reason: Reason = Reason.BEHIND_OLDER
    waited_s: dict[Reason, float] = field(default_factory=dict)
    share: Share = field(default_factory=lambda: Share(""))  # its tenant's in its class, since it first waited
    needs_blocks: int = 0  # waiting: with fewer available ones it is not worth another look

    worker: str = ""  # incarnation whose order it is in, or is leaving
    decode_worker: str = ""  # incarnation chosen to decode it
    leaving: bool = False
    moves: bool = False  # leaving, to go on elsewhere from all that is committed
    until: int = 0
    is_ordered: bool = False  # an order that names it was sent
    cursor: int = 0  # committed, as far as reported
    chunked: int = 0  # in chunk items of versions not yet reported
    cached_tokens: int = -1  # found in the cache at first admission; −1 before it

    forks: tuple["Choice", ...] = ()  # those that wait for its first token
    leader: "Choice | None" = None  # whose first token it waits for
    stake: list[int] = field(default_factory=list)  # with a leader: the prompt's blocks of its table, then its own

    beam: Beam | None = None  # of a beam search

    table: list[int] = field(default_factory=list)
    shared_blocks: int = 0  # the table's first, that are in the prefix tree
    copies: tuple[BlockCopy, ...] = ()  # not yet reported done
    tails: tuple[Tail, ...] = ()  # of an attempt taken from its worker: what the next copies, to go on behind its table
    costs: Costs | None = None  # of taking it from its worker, when that was last thought of
    awaits_blocks: bool = False  # running: out of blocks, until another ends
    swap_out: SwapOut | None = None  # leaving for the host tier
    swapped: Swapped | None = None  # there, until it is reported to be back
    reach: int = 0  # with copies or tails: as far as they may show it to be committed
    joined_tokens: int = 0  # known when it last joined a worker: more of them were drawn over the blocks it had there
    named: dict[str, int] = field(default_factory=dict)  # incarnation → version that removed it there

    is_older: bool = False  # an older term had it: its gateway listens to that attempt
    is_blind: bool = False  # generated again without its gateway's answer, which may have more of it
    answer_by_s: float | None = None  # asking: from then on it goes on without the gateway's answer
    computed: int = 0  # tokens whose KV a lost worker had written, as far as anybody's log tells; 0 once accounted for
    deaths: int = 0  # of workers that were computing it, since it last got past where one died
    died_at: int = 0  # committing beyond this clears it

    parked_s: float | None = None  # since when its worker compiles its grammar

    end: str = ""
    journal: list["Noted"] = field(default_factory=list)  # the State's: every change of any choice's reason

    stop_position: int = -1  # the gateway's stop string ends with this position's token; −1 while there is none

    @property
    def request_id(self) -> str:
        return self.sequence.request_id

    @property
    def key(self) -> Key:
        """Whose prefixes it may share."""
        return Key(self.sequence.tenant, self.sequence.adapter, self.sequence.cache_salt)

    @property
    def gateway(self) -> str:
        return self.sequence.gateway

    @property
    def deadline_s(self) -> float:
        return self.sequence.deadline_unix_ms / 1000

    @property
    def due_s(self) -> float:
        """When its client wants it, for putting it in order; infinite where only the server's limit ends it."""
        return self.deadline_s if self.sequence.is_timed else math.inf

    @property
    def was_admitted(self) -> bool:
        """It was in some worker's order before, of this term or an older one, so it comes back rather than comes."""
        return self.cached_tokens >= 0 or self.generated > 0

    @property
    def prompt_tokens(self) -> int:
        return len(self.sequence.ids)

    @property
    def generated(self) -> int:
        return len(self.ids) - len(self.sequence.ids)

    @property
    def generated_ids(self) -> tuple[int, ...]:
        return tuple(self.ids[len(self.sequence.ids) :])

    @property
    def candidates(self) -> int:
        """How many tokens that may follow its worker is to tell, instead of drawing one."""
        return 0 if self.beam is None else CANDIDATES_PER_BEAM * self.params.beam_width

    @property
    def is_dormant(self) -> bool:
        """It has no part in its beam search now: no hypothesis, or one that waits for the others' candidates."""
        return self.beam is not None and not self.beam.is_growing

    @property
    def total(self) -> int:
        """Generated tokens, with those up to the gateway's stop that are not reported yet."""
        return max(self.generated, self.stop_position + 1)

    @property
    def is_open(self) -> bool:
        """Tokens may still be generated."""
        return self.phase in OPEN

    @property
    def may_skip(self) -> int:
        """How many of its ids it may find computed: where its prompt is scored, as far as its scores reach."""
        if self.prompt_scores is None or len(self.prompt_scores) >= self.prompt_tokens - 1:
            return len(self.ids)
        return len(self.prompt_scores)

    @property
    def is_unscored(self) -> bool:
        """What is committed without its report may not be skipped."""
        return self.may_skip < len(self.ids)

    @property
    def keeps_blocks(self) -> bool:
        """While it asks or waits: it has committed blocks of an earlier attempt to go on from."""
        return bool(self.table or self.tails or self.swapped)

    @property
    def has_items(self) -> bool:
        """What it begins with is to be copied or brought back first."""
        return bool(self.copies or self.swapped)

    def swap_in(self) -> Swap:
        """The item that brings it back."""
        assert self.swapped is not None
        first, host_blocks = self.swapped.first, self.swapped.host_blocks
        return Swap(self.handle, tuple(self.table[first : first + len(host_blocks)]), host_blocks)

    @property
    def slots(self) -> int:
        """Slots it needs to its very end: the last token's KV is never written."""
        return len(self.sequence.ids) + self.params.max_tokens - 1

    @property
    def unplanned(self) -> int:
        """Known tokens that no chunk item covers yet; 0 when a single one is left, which advances without an item."""
        left = len(self.ids) - self.cursor - self.chunked
        return left if left > 1 else 0

    def disown(self) -> None:
        """What is known of it beyond its tails was not drawn by the attempt that wrote them."""
        self.joined_tokens = UNOWNED

    def explain(self, reason: Reason, now_s: float) -> None:
        """Note why it is where it is; the time spent for the reason before is added up."""
        if reason is not self.reason:
            self.waited_s[self.reason] = self.waited_s.get(self.reason, 0.0) + now_s - self.since_s
            self.reason, self.since_s = reason, now_s
            self.journal.append((self, reason))

    def remark(self, reason: Reason) -> None:
        """Note something of it that does not end the reason why it is where it is."""
        self.journal.append((self, reason))

    def waits_s(self) -> tuple[tuple[str, float], ...]:
        """(reason, seconds) of every wait that is over."""
        return tuple((reason.value, spent) for reason, spent in self.waited_s.items() if reason in WAITS)

    def resident(self) -> Resident:
        """The choice as an order adds it."""
        sequence = self.sequence
        return Resident(
            sequence=self.handle,
            request_id=sequence.request_id,
            choice=self.index,
            epoch=self.epoch,
            gateway=sequence.gateway,
            ids=tuple(self.ids),
            prompt_tokens=len(sequence.ids),
            cursor=self.cursor,
            block_table=tuple(self.table),
            until=self.until,
            params=self.params,
            cached_tokens=self.cached_tokens,
            traceparent=self.traceparent,
            reach=self.reach if self.copies and self.reach > self.cursor else 0,
            candidates=self.candidates,
            forks=tuple(Fork(fork.handle, fork.index, fork.epoch) for fork in self.forks),
        )
