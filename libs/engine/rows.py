"""What one step of the engine takes and gives: plain values, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.contracts.messages import SamplingParams


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """How the token at `position` of one choice is drawn.

    `banned_ids` cannot be drawn: the ends of sequence and the stop ids while position < min_tokens.
    """

    params: SamplingParams
    position: int
    choice: int
    banned_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One sequence in one step: its next n ≥ 1 tokens, whose KV goes to positions base … base + n − 1.

    `block_table` covers at least base + n tokens. With `sample` a token is drawn from the logits of the last token.
    """

    token_ids: Sequence[int]
    base: int
    block_table: Sequence[int]
    sample: SampleSpec | None


@dataclass(frozen=True, slots=True)
class Sampled:
    """A drawn token; `logprob` only if asked for. A row that is not finite draws nothing: `is_nan`, token −1."""

    token_id: int
    logprob: float | None
    is_nan: bool
