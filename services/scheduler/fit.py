"""How long a step takes: a line fitted to reported steps, in tokens and rows of the batch.

Normalised least mean squares (Widrow and Hoff, 1960): a report moves the line along its own batch only, so an hour of
steady decode does not wash out what a long chunk costs. An outlier counts as a step twice as long as expected.
"""

from dataclasses import dataclass

TOKENS_SCALE = 256.0  # batches of this size weigh like the constant term
ROWS_SCALE = 16.0
RATE = 0.2  # of an error that one report corrects, once a few are in


@dataclass(slots=True)
class StepTimeFit:
    """seconds ≈ base_s + per_token_s · tokens + per_row_s · rows; none of them negative."""

    reports: int = 0
    base_s: float = 0.0
    per_token_s: float = 0.0
    per_row_s: float = 0.0

    def predict_s(self, tokens: int, rows: int) -> float:
        """0 before the first report."""
        return self.base_s + self.per_token_s * tokens + self.per_row_s * rows

    def report(self, tokens: int, rows: int, seconds: float) -> None:
        self.reports += 1
        expected_s = self.predict_s(tokens, rows)
        if self.reports > 3:
            seconds = min(seconds, 2 * expected_s)
        x_tokens, x_rows = tokens / TOKENS_SCALE, rows / ROWS_SCALE
        rate = max(RATE, 1 / self.reports)
        step = rate * (seconds - expected_s) / (1 + x_tokens * x_tokens + x_rows * x_rows)
        self.base_s = max(0.0, self.base_s + step)
        self.per_token_s = max(0.0, self.per_token_s + step * x_tokens / TOKENS_SCALE)
        self.per_row_s = max(0.0, self.per_row_s + step * x_rows / ROWS_SCALE)
