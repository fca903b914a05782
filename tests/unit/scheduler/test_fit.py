"""The fitted step time."""

from services.scheduler.fit import StepTimeFit


def seconds(tokens: int, rows: int) -> float:
    return 0.02 + 0.002 * tokens + 0.001 * rows


def fitted() -> StepTimeFit:
    fit = StepTimeFit()
    for _ in range(60):
        for tokens, rows in ((512, 1), (8, 8), (16, 16), (256, 2), (1, 1)):
            fit.report(tokens, rows, seconds(tokens, rows))
    return fit


def test_it_finds_the_line_behind_mixed_steps() -> None:
    """Within a tenth, for batches it has seen and for one between them."""
    fit = fitted()
    for tokens, rows in ((512, 1), (8, 8), (128, 4)):
        assert abs(fit.predict_s(tokens, rows) - seconds(tokens, rows)) < 0.1 * seconds(tokens, rows)


def test_steady_decode_does_not_forget_what_a_chunk_costs() -> None:
    """Thousands of small steps say nothing about a large one."""
    fit = fitted()
    for _ in range(5000):
        fit.report(8, 8, seconds(8, 8))
    assert abs(fit.predict_s(512, 1) - seconds(512, 1)) < 0.15 * seconds(512, 1)


def test_one_slow_step_hardly_matters() -> None:
    """A process that the machine held up for a second has not become slow."""
    fit = fitted()
    fit.report(8, 8, 5.0)
    assert fit.predict_s(8, 8) < 1.3 * seconds(8, 8)


def test_it_follows_a_worker_that_became_slower() -> None:
    """Four times slower for good is believed within some dozens of steps."""
    fit = fitted()
    for _ in range(60):
        fit.report(8, 8, 4 * seconds(8, 8))
    assert abs(fit.predict_s(8, 8) - 4 * seconds(8, 8)) < 0.4 * seconds(8, 8)
