"""What a client may send, and the field that each refusal names."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.errors import InvalidRequest, ModelNotFound
from services.gateway.validate import Kind, ValidRequest, validate
from tests.unit.gateway.backend import MODEL
from tests.unit.gateway.conftest import CATALOG, LIMITS, MAX_MODEL_LEN, catalog_of

SEED = 1234


MESSAGES = [{"role": "user", "content": "hi"}]


def complete(**fields: Any) -> ValidRequest:
    payload = msgspec.json.encode({"model": MODEL, "prompt": "hi", **fields})
    return validate(Kind.COMPLETION, payload, CATALOG, draw_seed=lambda: SEED)


def chat(**fields: Any) -> ValidRequest:
    payload = msgspec.json.encode({"model": MODEL, "messages": MESSAGES, **fields})
    return validate(Kind.CHAT, payload, CATALOG, draw_seed=lambda: SEED)


def test_a_bare_completion_gets_the_defaults_of_the_api() -> None:
    """16 tokens, temperature 1, no filter, no stop, and a seed of its own."""
    request = complete()

    assert (request.params.max_tokens, request.params.temperature, request.params.seed) == (16, 1.0, SEED)
    assert (request.params.top_k, request.params.top_p, request.params.min_p) == (0, 1.0, 0.0)
    assert (request.reading.stops, request.stream, request.prompt.text, request.prompt.kind) == (
        (),
        False,
        "hi",
        "text",
    )


def test_a_chat_without_a_limit_may_fill_the_context() -> None:
    """The tokenizer, which knows the prompt's length, lowers it to what is left."""
    request = chat()

    assert request.params.max_tokens == MAX_MODEL_LEN
    assert msgspec.json.decode(request.prompt.messages_json) == [{"role": "user", "content": "hi"}]


def test_two_requests_without_a_seed_get_different_ones() -> None:
    """No hidden fixed seed: answers differ, yet each can be done again from its own."""
    payload = msgspec.json.encode({"model": MODEL, "prompt": "hi"})

    seeds = {validate(Kind.COMPLETION, payload, CATALOG).params.seed for _ in range(8)}

    assert len(seeds) == 8 and all(0 <= seed < 1 << 63 for seed in seeds)


def test_the_newer_name_of_the_limit_wins() -> None:
    """max_completion_tokens is obeyed where both are given."""
    assert chat(max_completion_tokens=3, max_tokens=9).params.max_tokens == 3


def test_a_limit_beyond_the_context_is_the_context() -> None:
    """A client may ask for more than fits; it gets what fits."""
    assert complete(max_tokens=10**9).params.max_tokens == MAX_MODEL_LEN


@pytest.mark.parametrize("top_k", [-1, 0, 257, 10**9, None])
def test_a_top_k_that_keeps_everything_is_off(top_k: int | None) -> None:
    """−1, 0, the vocabulary's size and above mean the same."""
    assert complete(top_k=top_k).params.top_k == 0


@pytest.mark.parametrize("temperature", [0, 1e-30, 1e-7])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    """Dividing by it would leave the range of float32."""
    assert complete(temperature=temperature).params.temperature == 0.0


@pytest.mark.parametrize(
    "field, values",
    [
        ("temperature", [-0.1, 2.1, 1e308, "hot", [], True]),
        ("top_p", [-0.1, 0, 1.1]),
        ("min_p", [-1, 1.5]),
        ("top_k", [-2, 1 << 31, 10**30, 1.5]),
        ("seed", [-(1 << 63) - 1, 1 << 64, 0.5, "7"]),
        ("max_tokens", [0, -1, 1 << 31, "ten", True]),
        ("min_tokens", [-1, 17]),
        ("stop", ["", [""], ["a", ""], ["x"] * 17, "x" * 1001, 7, [7]]),
        ("stop_token_ids", [[-1], [257], [1] * 129, 5, ["a"]]),
        (
            "prompt",
            [
                "",
                [],
                [[]],
                [""],
                [-1],
                [257],
                [1 << 31],
                [1 << 63],
                [1, 2.5],
                ["a", ""],
                [["a"]],
                [1, "a"],
                ["x"] * 129,
                None,
                {},
            ],
        ),
        ("stream", ["yes", 1]),
        ("stream_options", [{"include_usage": True}, 1]),
        ("n", [0, 129, -1, 10**9, "1", True]),
        ("best_of", [2]),
        ("logprobs", [-1, 21, True, 1.5, "1"]),
        (
            "logit_bias",
            [
                {"257": 1},
                {"-1": 1},
                {"x": 1},
                {"1.0": 1},
                {"5": 101},
                {"5": "1"},
                {str(i): 1 for i in range(1025)},
                [5],
            ],
        ),
        ("allowed_token_ids", [[], [257], [-1], [1] * 1025, "x"]),
        ("bad_words", [[""], [" "], ["x"] * 129, ["x" * 201], [7], "x"]),
        ("echo", ["yes", 1]),
        ("suffix", ["x"]),
        ("presence_penalty", [2.5, 99, "x"]),
        ("frequency_penalty", [-2.1]),
        ("repetition_penalty", [0, -1, 11]),
        ("prompt_logprobs", [-1, 21, True]),
        ("beam_width", [2, 0, -1]),
        ("early_stopping", [True, "never"]),
        ("length_penalty", [0, 2.0, "1"]),
        ("use_beam_search", ["true", 1]),
        ("truncate_prompt_tokens", [0, -2, 65, "1"]),
        ("include_stop_str_in_output", ["x"]),
        ("skip_special_tokens", [0]),
        ("cache_salt", ["", "x" * 257, 7]),
        ("prompt_cache_key", ["", 7]),
        ("request_id", ["", "a b", "x" * 129, "a\n", 7]),
        ("prompt_embeds", ["AAAA"]),
        ("model", [1, None]),
    ],
)
def test_a_bad_field_of_a_completion_is_named(field: str, values: list[Any]) -> None:
    """Out of bounds, of a wrong type, or asking for what is not there: 400 with the field as `param`."""
    for value in values:
        with pytest.raises(InvalidRequest) as raised:
            complete(**{field: value})
        assert raised.value.param == field, (value, raised.value.message)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "best_of": 1, "logprobs": None, "echo": False, "suffix": "", "use_beam_search": False},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1, "logit_bias": {}},
        {"response_format": {"type": "text"}, "skip_special_tokens": True, "include_stop_str_in_output": False},
        {"allowed_token_ids": None, "bad_words": [], "return_tokens_as_token_ids": False, "add_special_tokens": True},
        {"user": "u1", "metadata": {"k": "v"}, "store": False, "service_tier": "auto", "foo": {"a": [1]}},
        {"stop": [], "stop_token_ids": [], "seed": None, "stream": None, "stream_options": None, "max_tokens": None},
    ],
)
def test_what_asks_for_nothing_changes_nothing(fields: dict[str, Any]) -> None:
    """Neutral values of unsupported fields, nulls and unknown fields give the same request as without them."""
    assert complete(**fields) == complete()


def test_neutral_chat_fields_change_nothing() -> None:
    """What SDKs send by default is accepted."""
    fields = {"tools": [], "tool_choice": "auto", "logprobs": False, "top_logprobs": 0, "parallel_tool_calls": True}

    assert chat(**fields) == chat()


@pytest.mark.parametrize("model", ["other", "../../etc", "x\u0000y", ""])
def test_another_model_does_not_exist(model: str) -> None:
    """Whatever the name looks like."""
    with pytest.raises(ModelNotFound) as raised:
        complete(model=model)
    assert raised.value.param == "model"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b'{"model":',
        b"\xff",
        b'{"model":"bytes","prompt":"\\ud800"}',
        b'{"model":"bytes","prompt":"x","temperature":NaN}',
        b'{"model":"bytes","prompt":"x","temperature":1e999}',
        b'{"model":"bytes","prompt":"x","seed":' + b"9" * 5000 + b"}",
        b'{"model":"bytes","prompt":"x","foo":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model":"bytes","prompt":"x","tools":' + b"[" * 100_000,
        b'{"model":"bytes","prompt":"x"} {}',
    ],
)
def test_what_is_not_a_body_is_refused(payload: bytes) -> None:
    """Malformed, nested without end, or numbers that are none: always InvalidRequest."""
    with pytest.raises(InvalidRequest):
        validate(Kind.COMPLETION, payload, CATALOG)


def test_the_last_of_two_equal_keys_counts() -> None:
    """As JSON decoders commonly have it."""
    payload = b'{"model":"bytes","prompt":"a","prompt":"b","max_tokens":1,"max_tokens":2}'

    request = validate(Kind.COMPLETION, payload, CATALOG)

    assert (request.prompt.text, request.params.max_tokens) == ("b", 2)


@given(
    st.dictionaries(
        st.sampled_from(["prompt", "stop", "n", "seed", "top_k", "tools", "stream_options"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_any_values_are_taken_or_refused_by_type(fields: dict[str, Any]) -> None:
    """Nothing a client sends raises anything but InvalidRequest."""
    try:
        payload = msgspec.json.encode({"model": MODEL, "prompt": "hi", **fields})
    except (UnicodeEncodeError, OverflowError):
        return
    try:
        validate(Kind.COMPLETION, payload, CATALOG)
    except InvalidRequest as error:
        assert error.message


def test_a_negative_seed_is_the_same_64_bits_unsigned() -> None:
    """OpenAI's seed is a signed integer; every bit of it counts."""
    assert [complete(seed=seed).params.seed for seed in (-1, -(1 << 63), 7)] == [(1 << 64) - 1, 1 << 63, 7]


def test_unknown_fields_can_be_refused() -> None:
    """By a setting; what OpenAI has and we do without is no unknown field."""
    strict = catalog_of(replace(LIMITS, is_strict=True))
    known = msgspec.json.encode({"model": MODEL, "prompt": "hi", "user": "u", "metadata": {}, "min_p": 0.1})

    assert validate(Kind.COMPLETION, known, strict).params.min_p == 0.1
    with pytest.raises(InvalidRequest) as raised:
        validate(Kind.COMPLETION, msgspec.json.encode({"model": MODEL, "prompt": "hi", "temprature": 0}), strict)
    assert raised.value.param == "temprature"
