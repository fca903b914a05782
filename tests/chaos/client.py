"""A client of a stack under test: one streamed completion, every event of it noted in an Operation."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx

from tests.chaos.history import Operation, Part

ANSWER_S = 60.0  # without any news for this long a client gives up: it hangs


async def perform(
    http: httpx.AsyncClient, base_url: str, model: str, operation: Operation, more: Mapping[str, Any] | None = None
) -> None:
    """Send the request and follow it to its end, whatever that is. `more` are further fields of its body."""
    try:
        async with http.stream(
            "POST", f"{base_url}/completions", json={**_body(model, operation), **(more or {})}
        ) as answer:
            operation.status = answer.status_code
            operation.request_id = answer.headers.get("x-request-id", "")
            if answer.status_code != 200:
                operation.end("fail", time.monotonic(), (await answer.aread()).decode(errors="replace"))
                return
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    _note(operation, line.removeprefix("data: "))
    except asyncio.CancelledError:
        operation.end("info", time.monotonic(), "the client left")
        raise
    except httpx.HTTPError as error:
        operation.end("info", time.monotonic(), repr(error))
    if not operation.endings:
        operation.end("info", time.monotonic(), "the connection was closed without [DONE]")


def _body(model: str, operation: Operation) -> dict[str, Any]:
    params = operation.params
    return {
        "model": model,
        "prompt": list(operation.prompt_ids),
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "seed": params.seed,
        "n": operation.choices,
        "ignore_eos": params.ignore_eos,
        "stop": list(operation.stop),
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }


def _note(operation: Operation, text: str) -> None:
    now_s = time.monotonic()
    if text == "[DONE]":
        operation.end("ok", now_s)
        return
    event = json.loads(text)
    if "error" in event:
        operation.end("fail", now_s, text)
        return
    operation.usage = event.get("usage") or operation.usage
    for choice in event["choices"]:
        index = choice["index"]
        operation.parts.append(Part(now_s, tuple(choice.get("token_ids") or ()), choice["text"], index))
        if choice["finish_reason"]:
            operation.finish_reasons[index] = choice["finish_reason"]
