"""The requests that scenarios are made of."""

import pytest

from bench.scenarios import LOWEST_ID, SCENARIOS, Scenario, jobs, named

VOCAB = 49_152


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_same_seed_gives_the_same_requests_to_every_side(scenario: Scenario) -> None:
    """Both sides of a round get the same prompts, the next round gets others."""
    assert jobs(scenario, VOCAB, seed=3) == jobs(scenario, VOCAB, seed=3)
    assert jobs(scenario, VOCAB, seed=3) != jobs(scenario, VOCAB, seed=4)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_prompts_share_nothing_but_what_the_scenario_says(scenario: Scenario) -> None:
    """No block of a prompt is found again in another's, so that hits come from shared prefixes alone."""
    made = jobs(scenario, VOCAB, seed=1)
    heads = {job.prompt_ids[scenario.shared_tokens : scenario.shared_tokens + 16] for job in made}

    assert len(heads) == len(made)
    assert len({job.prompt_ids[: scenario.shared_tokens] for job in made}) == 1
    assert all(LOWEST_ID <= token_id < VOCAB for job in made for token_id in job.prompt_ids)


def test_a_fixed_scenario_has_its_sizes_and_the_late_request_last() -> None:
    """Four streams, and behind them the long prompt."""
    (scenario,) = named("S6")

    sizes = [(len(job.prompt_ids), job.new_tokens) for job in jobs(scenario, VOCAB, seed=1)]

    assert sizes == [(128, 256)] * 4 + [(1800, 1)]


def test_poisson_runs_have_the_same_arrivals_and_other_prompts() -> None:
    """Each size comes equally often, in a random order, and nobody is sent before the one ahead."""
    (scenario,) = named("S7")
    first, second = (jobs(scenario, VOCAB, seed) for seed in (1, 2))
    told = [[(job.at_s, len(job.prompt_ids), job.new_tokens) for job in made] for made in (first, second)]
    sizes = [size for _, *size in told[0]]

    assert scenario.poisson is not None
    assert told[0] == told[1] == sorted(told[0])
    assert [job.prompt_ids for job in first] != [job.prompt_ids for job in second]
    assert 0 < first[0].at_s < first[-1].at_s == scenario.requests / scenario.poisson.rate_s
    assert {sizes.count(size) for size in sizes} == {6}
    assert sizes[:4] != sizes[4:8]


def test_scenarios_are_chosen_by_name() -> None:
    """In the order asked for; none means all; an unknown one is an error."""
    assert [scenario.name for scenario in named("S3, S1")] == ["S3", "S1"]
    assert named("") == SCENARIOS
    with pytest.raises(KeyError, match="S9"):
        named("S9")
