"""What a request for a beam search may ask, and how its answers come."""

import json
from typing import Any

import pytest

from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import Delivered
from services.gateway.validate import Kind, ValidRequest, validate
from tests.unit.gateway.backend import TERM
from tests.unit.gateway.conftest import CATALOG, LIMITS, Gateway


def valid(**fields: Any) -> ValidRequest:
    body = {"model": LIMITS.model, "prompt": "x", "use_beam_search": True, **fields}
    return validate(Kind.COMPLETION, json.dumps(body).encode(), CATALOG)


def test_the_width_is_at_least_the_number_of_answers() -> None:
    """Without one it is that number; without a search there is none."""
    seen = [
        valid(n=3),
        valid(n=2, beam_width=5, length_penalty=0, early_stopping=True),
        valid(use_beam_search=False, n=2),
    ]
    assert [(request.choices, request.params.beam_width) for request in seen] == [(3, 3), (2, 5), (2, 0)]
    assert (seen[1].params.length_penalty, seen[1].params.early_stopping) == (0.0, True)
    assert (seen[0].params.length_penalty, seen[0].params.early_stopping) == (1.0, False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 3, "beam_width": 2}, "beam_width"),
        ({"beam_width": 129}, "beam_width"),
        ({"length_penalty": 11}, "length_penalty"),
        ({"stream": True}, "stream"),
        ({"stop": ["a"]}, "stop"),
    ],
)
def test_what_a_search_cannot_do_is_named(fields: dict[str, Any], param: str) -> None:
    """By a 400, before anything is computed."""
    with pytest.raises(InvalidRequest) as error:
        valid(**fields)
    assert error.value.param == param


async def test_answers_come_by_asking_once_the_ends_are_known(gateway: Gateway) -> None:
    """No frame has a token of a search: Finished tells how many there are, the scheduler's log has them."""
    call = gateway.complete(use_beam_search=True, max_tokens=3)
    request = await gateway.taken()
    await gateway.backend.accept(request)
    gateway.backend.log[request.request_id] = (tuple(b"abc"), "length")
    assert await gateway.backend.finished(request, 3, "length")

    assert await gateway.backend.told(Delivered) == Delivered(request.request_id, (3,), TERM, 1)
    assert (await call.json())["choices"][0]["text"] == "abc"
