"""Answers of a form through the whole stack, and through the death of the worker that writes them."""

import asyncio
import json
from typing import Any

import jsonschema
import pytest

from tests.e2e.client import complete, events
from tests.e2e.conftest import Stack, StackFactory

pytestmark = [pytest.mark.e2e, pytest.mark.whole]

CHOICES, SEED = 3, 11
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 3, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(params=("hybrid", "disaggregated"))
def running(stack: StackFactory, request: pytest.FixtureRequest) -> Stack:
    return stack(dtype="float32", role=request.param)


def body(stack: Stack, **more: Any) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    fields = {
        "model": stack.model,
        "prompt": "A person, as JSON: ",
        "max_tokens": 150,
        "temperature": 0.8,
        "seed": SEED,
    }
    return {**fields, "response_format": form, "return_token_ids": True, **more}


async def test_a_worker_s_death_changes_no_answer_of_a_form(running: Stack) -> None:
    """Killed while all choices decode: each goes on elsewhere with the tokens that it has alone, and validates."""
    asked = [complete(running.base_url, body(running, seed=SEED + index)) for index in range(CHOICES)]
    alone = [answer["choices"][0] for answer in await asyncio.gather(*asked)]
    victims = running.processes("decode_worker")
    got: list[list[int]] = [[] for _ in range(CHOICES)]
    async for event in events(running.base_url, body(running, n=CHOICES)):
        for choice in event["choices"]:
            got[choice["index"]] += choice["token_ids"]
        if victims and min(map(len, got)) >= 3:
            victims.pop().kill()

    assert not victims
    assert got == [choice["token_ids"] for choice in alone]
    for choice in alone:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["text"]), SCHEMA)


async def test_hypotheses_of_a_search_have_the_form(running: Stack) -> None:
    """Each of the best ends where the schema is satisfied."""
    answer = await complete(running.base_url, body(running, n=2, use_beam_search=True))

    for choice in answer["choices"]:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["text"]), SCHEMA)
