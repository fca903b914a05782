"""What a key's quota does to a request, and how its client hears of it."""

from pathlib import Path

import pytest

from libs.contracts.messages import Prompt
from libs.runtime import api_keys
from libs.runtime.quota import Quota, QuotaLimits
from services.gateway.charges import estimated_tokens
from services.gateway.quota_headers import quota_headers, spelled
from tests.unit.gateway.conftest import running_gateway


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0ms"), (0.0201, "21ms"), (1, "1s"), (1.51, "1.6s"), (360, "6m0s"), (361.2, "6m2s")],
)
def test_durations_are_spelled_as_openai_does(seconds: float, text: str) -> None:
    """Rounded up: who waits so long does not come too early."""
    assert spelled(seconds) == text


def test_headers_tell_what_has_a_limit() -> None:
    """Limit, rest and when it is full; a debt is nothing left."""
    quota = Quota(QuotaLimits(60, 0), True, 59.5, 0)
    assert list(quota_headers(quota)) == [
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"59"),
        (b"x-ratelimit-reset-requests", b"500ms"),
    ]
    in_debt = dict(quota_headers(Quota(QuotaLimits(0, 60), False, 0, -60)))
    assert in_debt[b"x-ratelimit-remaining-tokens"] == b"0" and in_debt[b"x-ratelimit-reset-tokens"] == b"2m0s"


def test_a_prompt_is_estimated_by_its_bytes_or_counted_by_its_ids() -> None:
    """Four bytes a token."""
    assert estimated_tokens(Prompt(ids=(1, 2, 3), kind="ids")) == 3
    assert estimated_tokens(Prompt(text="é" * 8, kind="text")) == 4


async def test_a_key_that_has_had_its_share_is_refused_until_there_is_more(tmp_path: Path) -> None:
    """429 with OpenAI's headers and when to come back; each answer before tells what is left."""
    path = tmp_path / "keys.json"
    key, _ = api_keys.add(path, "acme", requests_per_minute=2, tokens_per_minute=100)
    headers = {"authorization": f"Bearer {key}"}
    async with running_gateway(keys_path=path) as gateway:
        for left in (b"1", b"0"):
            call = gateway.call("/v1/completions", {"prompt": "hi", "max_tokens": 1}, headers=headers)
            request = await gateway.taken()
            assert await gateway.backend.accept(request)
            await gateway.backend.tokens(request, 0, [5], "length")
            await call.whole()
            assert call.status == 200 and call.headers["x-ratelimit-remaining-requests"] == left.decode()
        refused = gateway.call("/v1/completions", {"prompt": "hi"}, headers=headers)
        error = (await refused.json())["error"]

    assert (refused.status, error["code"], error["type"]) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert refused.headers["x-ratelimit-remaining-requests"] == "0" and float(refused.headers["retry-after"]) >= 22
    assert int(refused.headers["x-ratelimit-remaining-tokens"]) < 100


async def test_a_request_that_fails_gives_its_tokens_back(tmp_path: Path) -> None:
    """What nobody computed costs a request, and no tokens."""
    path = tmp_path / "keys.json"
    key, entry = api_keys.add(path, "acme", tokens_per_minute=100)
    headers = {"authorization": f"Bearer {key}"}
    async with running_gateway(keys_path=path) as gateway:
        call = gateway.call("/v1/completions", {"prompt": "x" * 400}, headers=headers)
        await gateway.taken()
        call.leave()
        await call.task
        again = gateway.call("/v1/completions", {"prompt": "x" * 400}, headers=headers)
        await gateway.taken()
        again.leave()
        await again.task

    assert entry.tokens_per_minute == 100


async def test_a_key_does_what_its_scopes_say(tmp_path: Path) -> None:
    """One that may only generate sees no metrics, and the other way round."""
    path = tmp_path / "keys.json"
    keys = {scope: api_keys.add(path, "acme", scopes=(scope,))[0] for scope in ("inference", "metrics")}
    seen = {}
    async with running_gateway(keys_path=path) as gateway:
        for scope, key in keys.items():
            for route in ("/metrics", "/v1/models"):
                call = gateway.call(route, method="GET", headers={"authorization": f"Bearer {key}"})
                await call.whole()
                seen[scope, route] = call.status

    assert seen == {
        ("inference", "/metrics"): 403,
        ("inference", "/v1/models"): 200,
        ("metrics", "/metrics"): 200,
        ("metrics", "/v1/models"): 403,
    }
