"""What cannot be served is refused with OpenAI's error object, and nothing of it stays behind."""

import json
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Stack, StackFactory

pytestmark = pytest.mark.e2e

CHAT, COMPLETIONS = "/chat/completions", "/completions"
BAD: dict[str, tuple[str, dict[str, Any] | bytes, int, str | None]] = {
    "longer than the context": (COMPLETIONS, {"prompt": [500] * 1024}, 400, "prompt"),
    "longer than the pool": (COMPLETIONS, {"prompt": [500] * 700}, 400, "prompt"),
    "chat longer than the context": (
        CHAT,
        {"messages": [{"role": "user", "content": "word " * 2000}]},
        400,
        "messages",
    ),
    "chat longer than the pool": (CHAT, {"messages": [{"role": "user", "content": "word " * 700}]}, 400, "messages"),
    "empty prompt": (COMPLETIONS, {"prompt": ""}, 400, "prompt"),
    "no ids": (COMPLETIONS, {"prompt": []}, 400, "prompt"),
    "an id that is no token": (COMPLETIONS, {"prompt": [49_152]}, 400, "prompt"),
    "no messages": (CHAT, {"messages": []}, 400, "messages"),
    "unknown model": (COMPLETIONS, {"prompt": "x", "model": "other"}, 404, "model"),
    "malformed JSON": (COMPLETIONS, b'{"prompt": "x"', 400, None),
    "not an object": (COMPLETIONS, b"[1, 2]", 400, None),
}


@pytest.fixture
def small(stack: StackFactory) -> Stack:
    """A pool of half the context."""
    return stack(role="hybrid", kv_blocks=32, max_model_len=1024)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_refused_and_leaves_nothing(small: Stack, case: str, stream: bool) -> None:
    """The status and the field to blame are the same whether or not a stream was asked for."""
    path, body, status, param = BAD[case]
    if isinstance(body, dict):
        body = json.dumps({"model": small.model, "stream": stream, "max_tokens": 4, **body}).encode()

    answer = httpx.post(small.base_url + path, content=body, headers={"content-type": "application/json"}, timeout=30)

    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/json")
    error = answer.json()["error"]
    assert error["message"] and error["type"] and error["param"] == param
    now = small.status()
    blocks = now["blocks"]
    assert (blocks["held"], blocks["freeing"], now["waiting"], now["running"]) == (0, 0, 0, 0)
