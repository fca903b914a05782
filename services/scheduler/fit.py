"""How long a step takes: a line fitted to reported steps, in tokens, rows and attention of the batch.

Normalised least mean squares (Widrow and Hoff, 1960): a report moves the line along its own batch only, so an hour of
steady decode does not wash out what a long chunk costs. An outlier counts as a step twice as long as expected.
"""

from dataclasses import dataclass

TOKENS_SCALE = 256.0  # batches of this size weigh like the constant term
ROWS_SCALE = 16.0
PAIRS_SCALE = 256.0 * 2048  # a pair is one token that attends to one position
RATE = 0.2  # of an error that one report corrects, once a few are in
FIRST_TOKENS = 64  # of a batch while nothing is known: a cold worker must not be busy for seconds
REACH = 4  # times the widest batch reported: the line is not trusted further out


@dataclass(slots=True)
class StepTimeFit:
    """seconds ≈ base_s + per_token_s · tokens + per_row_s · rows + per_pair_s · pairs; none of them negative."""

    reports: int = 0
    widest_tokens: int = 0
    base_s: float = 0.0
    per_token_s: float = 0.0
    per_row_s: float = 0.0
    per_pair_s: float = 0.0

    def predict_s(self, tokens: int, rows: int, pairs: int = 0) -> float:
        """0 before the first report."""
        return self.base_s + self.per_token_s * tokens + self.per_row_s * rows + self.per_pair_s * pairs

    def tokens_within(self, limit_s: float, rows: int, context: int = 0) -> int:
        """The largest chunk behind `context` tokens, beside `rows` decoding rows, that is expected to end in time.

        As far as the line reaches; what the chunk attends to of itself is left out.
        """
        reach = max(FIRST_TOKENS, REACH * self.widest_tokens)
        token_s = self.per_token_s + self.per_pair_s * context
        if token_s <= 0:
            return reach
        return min(reach, max(0, int((limit_s - self.base_s - self.per_row_s * rows) / token_s)))

    def report(self, tokens: int, rows: int, seconds: float, pairs: int = 0) -> None:
        self.reports += 1
        self.widest_tokens = max(self.widest_tokens, tokens)
        expected_s = self.predict_s(tokens, rows, pairs)
        if self.reports > 3:
            seconds = min(seconds, 2 * expected_s)
        x_tokens, x_rows, x_pairs = tokens / TOKENS_SCALE, rows / ROWS_SCALE, pairs / PAIRS_SCALE
        rate = max(RATE, 1 / self.reports)
        step = rate * (seconds - expected_s) / (1 + x_tokens**2 + x_rows**2 + x_pairs**2)
        self.base_s = max(0.0, self.base_s + step)
        self.per_token_s = max(0.0, self.per_token_s + step * x_tokens / TOKENS_SCALE)
        self.per_row_s = max(0.0, self.per_row_s + step * x_rows / ROWS_SCALE)
        self.per_pair_s = max(0.0, self.per_pair_s + step * x_pairs / PAIRS_SCALE)
