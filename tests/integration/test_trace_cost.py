"""Tracing is cheap enough never to be switched off."""

from bench.trace_cost import cost_s

GATEWAY_S = 128 * 0.0005  # of CPU that a gateway alone spends on a stream of 128 tokens


async def test_all_records_of_a_request_cost_less_than_two_percent_of_its_cpu_time() -> None:
    """Counted in process, the writing thread included, against no tracing: 128 tokens, eight at once."""
    assert await cost_s(rounds=3) < 0.02 * GATEWAY_S
