"""What a body says of its prompt, and how it becomes ids."""

from typing import Any

import msgspec
import pytest

from libs.contracts.errors import ContextTooLong, InvalidRequest
from services.gateway.prompt_fields import MAX_ARGUMENTS_DEPTH
from tests.unit.gateway.conftest import MAX_MODEL_LEN
from tests.unit.gateway.test_validate import chat, complete


def test_text_parts_are_joined_by_newlines() -> None:
    """A list of text parts reaches the template as one string."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    request = chat(messages=[{"role": "user", "content": parts, "name": "n"}])

    assert msgspec.json.decode(request.prompt.messages_json) == [{"role": "user", "content": "a\nb", "name": "n"}]


@pytest.mark.parametrize("prompt", ["hi", ["hi"]])
def test_one_prompt_may_stand_in_a_list(prompt: str | list[str]) -> None:
    """A list of one is that one."""
    assert complete(prompt=prompt).prompt.text == "hi"


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
def test_a_prompt_may_be_ids(prompt: list[Any]) -> None:
    """Ids are passed on as they are."""
    assert (complete(prompt=prompt).prompt.ids, complete(prompt=prompt).prompt.kind) == ((1, 2), "ids")


def test_ids_that_fill_the_context_are_too_long() -> None:
    """The refusal names both numbers; one token less fits."""
    with pytest.raises(ContextTooLong, match=rf"{MAX_MODEL_LEN} tokens.*{MAX_MODEL_LEN} tokens"):
        complete(prompt=[7] * MAX_MODEL_LEN)
    assert len(complete(prompt=[7] * (MAX_MODEL_LEN - 1)).prompt.ids) == MAX_MODEL_LEN - 1


def test_a_longer_prompt_may_be_cut() -> None:
    """truncate_prompt_tokens: the tokenizer takes its last ids; −1 stands for the context."""
    cut = complete(prompt=[7] * 2 * MAX_MODEL_LEN, truncate_prompt_tokens=-1).prompt

    assert (cut.last_tokens, len(cut.ids)) == (-1, 2 * MAX_MODEL_LEN)
    assert chat(truncate_prompt_tokens=5).prompt.last_tokens == 5


def test_the_tokens_around_a_text_may_be_left_out() -> None:
    """add_special_tokens is of raw text; a chat's template writes its own."""
    assert [complete(add_special_tokens=flag).prompt.is_bare for flag in (None, True, False)] == [False, False, True]


@pytest.mark.parametrize(
    ("fields", "has_no_turn", "goes_on"),
    [
        ({}, False, False),
        ({"add_generation_prompt": False}, True, False),
        ({"continue_final_message": True}, True, True),
        ({"continue_final_message": True, "add_generation_prompt": False}, True, True),
    ],
)
def test_how_a_chat_ends_is_the_client_s_choice(fields: dict[str, Any], has_no_turn: bool, goes_on: bool) -> None:
    """With the opening of a turn, without it, or inside the last message."""
    prompt = chat(**fields).prompt

    assert (prompt.has_no_turn, prompt.goes_on) == (has_no_turn, goes_on)


def test_a_turn_cannot_be_opened_and_continued() -> None:
    """The two exclude each other when both are asked for."""
    with pytest.raises(InvalidRequest) as raised:
        chat(continue_final_message=True, add_generation_prompt=True)
    assert raised.value.param == "continue_final_message"


def test_template_arguments_are_passed_on() -> None:
    """As JSON, whatever is in them, unless rendering owns the name."""
    arguments = chat(chat_template_kwargs={"enable_thinking": False, "n": [1, {"x": "é"}]}).prompt.arguments_json

    assert msgspec.json.decode(arguments) == {"enable_thinking": False, "n": [1, {"x": "é"}]}
    assert chat(chat_template_kwargs={}).prompt.arguments_json == b""


@pytest.mark.parametrize("innermost", [b"1", b"[]"])
def test_template_arguments_may_be_nested_so_deep_as_is_told(innermost: bytes) -> None:
    """Objects and lists are counted, the outermost as well; what is in the innermost is none."""
    levels = MAX_ARGUMENTS_DEPTH - 1 - (innermost == b"[]")
    deepest = msgspec.json.decode(b"[" * levels + innermost + b"]" * levels)

    assert chat(chat_template_kwargs={"x": deepest}).prompt.arguments_json
    with pytest.raises(InvalidRequest, match="at most 16 levels"):
        chat(chat_template_kwargs={"x": [deepest]})
