"""What a client may send in a chat, and the field that each refusal names."""

from typing import Any

import pytest

from libs.contracts.errors import InvalidRequest
from tests.unit.gateway.test_validate import MESSAGES, chat


def _nested(depth: int) -> Any:
    return [_nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "field, values",
    [
        (
            "messages",
            [
                [],
                "x",
                None,
                [{}],
                [{"content": "x"}],
                [{"role": "", "content": "x"}],
                [{"role": "user", "content": 7}],
                [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}]}],
                [{"role": "user", "content": [{"type": "text"}]}],
                [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
                MESSAGES * 4097,
            ],
        ),
        ("tools", [[{"type": "function"}]]),
        ("tool_choice", ["required", {"type": "function"}]),
        ("functions", [[{}]]),
        ("logprobs", [1, "x"]),
        ("top_logprobs", [2, 21, -1]),
        ("chat_template", ["{{ x }}"]),
        (
            "chat_template_kwargs",
            [
                {"tokenize": True},
                {"messages": []},
                {"chat_template": "x"},
                [1],
                {"x": "y" * 20_000},
                {"x": _nested(20)},
            ],
        ),
        ("max_completion_tokens", [0, -3]),
        ("continue_final_message", ["x"]),
        ("max_tokens", [0]),
        ("modalities", [["text", "audio"]]),
    ],
)
def test_a_bad_field_of_a_chat_is_named(field: str, values: list[Any]) -> None:
    """As for completions."""
    for value in values:
        with pytest.raises(InvalidRequest) as raised:
            chat(**{field: value})
        assert raised.value.param == field, (value, raised.value.message)
