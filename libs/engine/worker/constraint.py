"""A grammar as it bears on one answer: which ids may follow, as a mask that another thread fills beside the forward.

Two threads meet here. The step thread calls `want` and, once a step has seen `mask_ready`, `add`; the thread of masks
calls `fill` in between, so no field has two owners at a time.
"""

from collections.abc import Callable, Sequence

import numpy as np
from llguidance import LLMatcher

WORD_BITS = 32


class Constraint:
    """See libs/engine/worker/ports.py. `wanted` notes that `fill` is to be called."""

    def __init__(self, answer_ids: Sequence[int], vocab_size: int, wanted: Callable[["Constraint"], None]) -> None:
        self.mask_W = np.zeros(-(-vocab_size // WORD_BITS), np.uint32)
        self.mask_ready = np.ones(1, np.int32)
        self.is_open = False
        self.failure = ""  # why nothing can follow, where that is the matcher's doing
        self._matcher: LLMatcher | None = None
        self._untaken = list(answer_ids)  # ids that the matcher has not consumed
        self._wanted = wanted
        self._mask_address, self._mask_bytes = self.mask_W.ctypes.data, self.mask_W.nbytes

    def begin(self, matcher: LLMatcher) -> None:
        """Take the ids known at the beginning; of an answer handed over they may be many. Not called again."""
        self._matcher = matcher
        self._consume(matcher)
        self.is_open = True

    def refuse(self, reason: str) -> None:
        """There is no matcher: no id may follow."""
        self.failure, self.is_open = reason, True

    def add(self, token_id: int) -> None:
        self._untaken.append(token_id)

    def want(self) -> None:
        self.mask_ready[0] = 0
        self._wanted(self)

    def fill(self) -> None:
        """The step waits for this, so it comes to an end whatever happens."""
        is_filled = False
        try:
            is_filled = self._matcher is not None and self._fill(self._matcher)
        finally:
            if not is_filled:
                self.mask_W.fill(0)
            self.mask_ready[0] = 1

    def _fill(self, matcher: LLMatcher) -> bool:
        """False where the matcher has failed: its mask would then let an end follow."""
        self._consume(matcher)
        if not self.failure:
            matcher.unsafe_compute_mask_ptr(self._mask_address, self._mask_bytes)
            self._note_failure(matcher)
        return not self.failure

    def _consume(self, matcher: LLMatcher) -> None:
        if self._untaken and not matcher.consume_tokens(self._untaken):
            self._note_failure(matcher)
        self._untaken.clear()

    def _note_failure(self, matcher: LLMatcher) -> None:
        if matcher.is_error():
            self.failure = matcher.get_error() or "unknown"
