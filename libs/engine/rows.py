"""What one step of the engine takes and gives: plain values, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.contracts.messages import Candidate, PromptScores, SamplingParams
from libs.engine.adjustment import Adjustment


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """How the token at `position` of one choice is drawn.

    `banned_ids` cannot be drawn: the ends of sequence and the stop ids while position < min_tokens, and what would
    complete a bad word. `adjustment` changes logits before that. With `candidates` the likeliest so many ids are wanted
    beside it.
    """

    params: SamplingParams
    position: int
    choice: int
    banned_ids: tuple[int, ...]
    candidates: int = 0
    adjustment: Adjustment | None = None


@dataclass(frozen=True, slots=True)
class StepRow:
    """One sequence in one step: its next n ≥ 1 tokens, whose KV goes to positions base … base + n − 1.

    `block_table` covers at least base + n tokens. With `sample` a token is drawn from the logits of the last token, and
    one more from the same logits for each of `forks`. `scored_ids` are what follows its first tokens: how likely they
    were is told, with the `score_tops` likeliest in place of each.
    """

    token_ids: Sequence[int]
    base: int
    block_table: Sequence[int]
    sample: SampleSpec | None
    forks: tuple[SampleSpec, ...] = ()
    scored_ids: Sequence[int] = ()
    score_tops: int = 0


@dataclass(frozen=True, slots=True)
class Sampled:
    """A drawn token; `logprob` and `candidates` only if asked for. A row that is not finite draws nothing: `is_nan`,
    token −1, and so do its forks. Token −1 without `is_nan`: every id is banned, or none was to be drawn.

    `candidates` come with the likeliest first, equal ones by id; there are fewer where the vocabulary has no more.
    """

    token_id: int
    logprob: float | None
    is_nan: bool
    candidates: tuple[Candidate, ...] = ()
    forks: tuple["Sampled", ...] = ()
    top_ids: tuple[int, ...] = ()  # the likeliest by the raw logits, as many as `logprobs` of the parameters says
    top_logprobs: tuple[float, ...] = ()
    scores: PromptScores | None = None
