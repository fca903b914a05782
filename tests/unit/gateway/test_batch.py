"""Several prompts of one completion: a request each to the services behind, one answer to the client."""

import asyncio
from typing import Any

import pytest

from libs.contracts.errors import NumericalError, WireError
from libs.contracts.messages import Cancel, Delivered, Request
from tests.unit.gateway.asgi import events
from tests.unit.gateway.backend import PROMPT_IDS
from tests.unit.gateway.conftest import Gateway
from tests.unit.gateway.test_validate import complete


async def taken(gateway: Gateway, count: int) -> list[Request]:
    requests = [await gateway.taken() for _ in range(count)]
    for request in requests:
        await gateway.backend.accept(request)
    return requests


def test_each_prompt_is_a_request_of_its_own() -> None:
    """With the parameters of all, and a seed of its own where the client gave none."""
    drawn = complete(prompt=["a", [5, 6], "c"], n=2)
    given = complete(prompt=["a", "b"], seed=7)

    assert [one.prompt.text or one.prompt.ids for one in (drawn, *drawn.more)] == ["a", (5, 6), "c"]
    assert [one.choices for one in drawn.more] == [2, 2] and not any(one.more for one in drawn.more)
    assert [one.params.seed for one in (given, *given.more)] == [7, 7]


@pytest.mark.parametrize("stream", [False, True])
async def test_choices_are_numbered_prompt_by_prompt(gateway: Gateway, stream: bool) -> None:
    """Whatever order they end in; usage is of all of them."""
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    call = gateway.complete(prompt=["x", "y"], n=2, max_tokens=2, **options)
    first, second = await taken(gateway, 2)
    for request, choice, text in ((second, 1, b"ab"), (first, 0, b"cd"), (second, 0, b"ef"), (first, 1, b"gh")):
        await gateway.backend.tokens(request, 0, text, "length", choice=choice)
        await asyncio.sleep(0)

    texts: dict[int, str] = {}
    if stream:
        *chunks, last, done = events(await call.whole())
        for chunk in chunks:
            (one,) = chunk["choices"]
            texts[one["index"]] = texts.get(one["index"], "") + one["text"]
        usage = last["usage"]
        assert done == "[DONE]" and len({chunk["id"] for chunk in [*chunks, last]}) == 1
    else:
        body = await call.json()
        assert [one["index"] for one in body["choices"]] == [0, 1, 2, 3]
        texts, usage = {one["index"]: one["text"] for one in body["choices"]}, body["usage"]
    assert texts == {0: "cd", 1: "gh", 2: "ef", 3: "ab"}
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2 * len(PROMPT_IDS), 8)
    assert {type(await gateway.backend.told(Delivered)) for _ in range(2)} == {Delivered}


async def test_a_failure_of_one_ends_them_all(gateway: Gateway) -> None:
    """The client gets the error, and the others are cancelled."""
    call = gateway.complete(prompt=["x", "y"], max_tokens=2)
    first, second = await taken(gateway, 2)
    await gateway.backend.tokens(second, 0, b"a")
    await gateway.backend.fail(first, WireError.of(NumericalError("not finite")))

    assert (await call.json())["error"]["code"] == "numerical_error" and call.status == 500
    assert (await gateway.backend.told(Cancel)).request_id == second.request_id


async def test_a_client_that_leaves_takes_all_of_them_along(gateway: Gateway) -> None:
    """None is computed for nobody."""
    call = gateway.complete(prompt=["x", "y", "z"], max_tokens=2, stream=True)
    requests = await taken(gateway, 3)
    call.leave()

    cancelled = {(await gateway.backend.told(Cancel)).request_id for _ in range(3)}
    assert cancelled == {request.request_id for request in requests}


@pytest.mark.parametrize(
    ("header", "field", "told"),
    [
        ("mine-1", None, "mine-1"),
        ("mine-1", "yours:2", "yours:2"),
        (None, "yours:2", "yours:2"),
        ("not mine", None, ""),
    ],
)
async def test_a_client_may_name_its_request(
    gateway: Gateway, header: str | None, field: str | None, told: str
) -> None:
    """The name comes back in the header, and is no key to anything: two requests may have the same one."""
    headers = {"host": "localhost:8000", "content-type": "application/json"}
    if header is not None:
        headers["x-request-id"] = header
    body = {"prompt": "hi", "max_tokens": 1, "request_id": field}
    calls = [gateway.call("/v1/completions", body, headers=headers) for _ in range(2)]
    requests = await taken(gateway, 2)
    for request in requests:
        await gateway.backend.tokens(request, 0, b"a", "length")
    bodies = [await call.json() for call in calls]

    assert {one["id"] for one in bodies} == {request.request_id for request in requests}
    assert [call.headers["x-request-id"] for call in calls] == [told or one["id"] for one in bodies]
