"""Fields that change what may be drawn, from a body to the parameters of a sequence."""

from typing import Any

import pytest

from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import TokenBias
from services.gateway.logprob_fields import Asked
from tests.unit.gateway.test_validate import chat, complete


def test_penalties_and_biases_reach_the_parameters() -> None:
    """By the names of the API; ids are keys of an object, as strings."""
    fields = {"repetition_penalty": 1.25, "presence_penalty": -2, "frequency_penalty": 0.5}
    params = complete(**fields, logit_bias={"7": -100, "256": 1.5}, allowed_token_ids=[3, 3, 9]).params

    assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.25, -2.0, 0.5)
    assert params.logit_bias == (TokenBias(7, -100.0), TokenBias(256, 1.5))
    assert params.allowed_token_ids == (3, 9)


def test_bad_words_go_to_the_tokenizer_as_text() -> None:
    """Which ids they are is its business; equal ones count once."""
    request = complete(bad_words=["bad", "worse ", "bad"])

    assert (request.bad_words, request.params.bad_words) == (("bad", "worse "), ())


@pytest.mark.parametrize(
    "fields", [{"repetition_penalty": 1.1}, {"presence_penalty": 1}, {"frequency_penalty": 1}, {"logit_bias": {"7": 1}}]
)
def test_a_beam_search_draws_from_the_model_s_own_scores(fields: dict[str, Any]) -> None:
    """Only bans go with it: what is likeliest is then still what the model says."""
    with pytest.raises(InvalidRequest) as raised:
        complete(use_beam_search=True, **fields)
    assert raised.value.param == next(iter(fields))
    assert complete(use_beam_search=True, allowed_token_ids=[7], bad_words=["x"]).params.beam_width == 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, Asked()),
        ({"logprobs": 0}, Asked(0)),
        ({"logprobs": 5}, Asked(5)),
        ({"logprobs": 3, "echo": True}, Asked(3, -1, 3)),
        ({"echo": True}, Asked()),
        ({"prompt_logprobs": 0}, Asked(-1, 0)),
        ({"prompt_logprobs": 7, "logprobs": 2, "echo": True}, Asked(2, 7, 2)),
    ],
)
def test_what_a_completion_asks_for(asked: dict[str, Any], expected: Asked) -> None:
    """Of the answer, of the prompt, and of the prompt because it is echoed; the greater number is computed."""
    request = complete(**asked)

    assert request.logprobs == expected
    assert (request.params.logprobs, request.params.prompt_logprobs) == (expected.answer, expected.of_prompt)
    assert request.wants_prompt_ids == ("echo" in asked or expected.of_prompt >= 0)


def test_what_a_chat_asks_for() -> None:
    """logprobs is a switch there, and top_logprobs the number."""
    assert chat(logprobs=True).logprobs == Asked(0)
    assert chat(logprobs=True, top_logprobs=20).logprobs == Asked(20)
    assert chat(logprobs=True, echo=True).logprobs == Asked(0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"use_beam_search": True, "logprobs": 1}, "logprobs"),
        ({"use_beam_search": True, "prompt_logprobs": 0}, "prompt_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 2, "best_of": 3}, "best_of"),
    ],
)
def test_what_does_not_go_together_is_named(fields: dict[str, Any], param: str) -> None:
    """400, with the field that would have to change."""
    with pytest.raises(InvalidRequest) as raised:
        complete(**fields)
    assert raised.value.param == param


def test_a_prompt_without_an_answer() -> None:
    """max_tokens 0 beside echo: a step draws one token all the same, which nobody is told."""
    request = complete(max_tokens=0, echo=True)

    assert (request.params.max_tokens, request.reading.is_silent) == (1, True)
    assert not chat(max_tokens=0, max_completion_tokens=5).reading.is_silent  # the newer name counts


def test_one_of_two_names_of_a_salt() -> None:
    """cache_salt, or OpenAI's prompt_cache_key."""
    assert [complete(**fields).cache_salt for fields in ({}, {"prompt_cache_key": "k"}, {"cache_salt": "s"})] == [
        "",
        "k",
        "s",
    ]
