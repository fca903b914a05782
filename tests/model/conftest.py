"""How long the model runs: 5,000 steps of one drawn set in every run of the tests, 120,000 of a new one in a night."""

from hypothesis import HealthCheck, settings

STEPS = 60  # of one schedule

_ALWAYS = settings(
    stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, database=None
)
settings.register_profile("model", _ALWAYS, max_examples=85, derandomize=True)
settings.register_profile("nightly", _ALWAYS, max_examples=2_000)
