"""The gRPC door's pure parts: a message as the HTTP body it stands for, and errors as statuses."""

import json
from dataclasses import fields

import msgspec
import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2

from libs.contracts.errors import (
    DeadlineExceeded,
    HeadraceError,
    InvalidRequest,
    Overloaded,
    Unauthorized,
    Unavailable,
    all_kinds,
)
from libs.contracts.messages import (
    ChatMessage,
    GenerateRequest,
    RawPrompt,
    StructuredOutputs,
    TokenBias,
    TokenizeRequest,
)
from services.gateway import errors_grpc, errors_http, rpc_server
from services.gateway.rpc_request import PROMPTS, http_body, tokenize_body
from services.gateway.schemas import ChatBody, CompletionBody
from services.gateway.validate import Kind

HTTP_ONLY = {"not_found", "method_not_allowed", "request_timeout", "unsupported_media_type"}


def body(request: GenerateRequest, *, stream: bool = False, left_s: float | None = None) -> dict[str, object]:
    parsed: dict[str, object] = json.loads(http_body(request, stream=stream, left_s=left_s)[1])
    return parsed


def test_a_message_has_the_fields_of_the_http_body() -> None:
    """Every one of them, by the same name: what one door checks the other does as well."""
    known = {*CompletionBody.__struct_fields__, *ChatBody.__struct_fields__}

    assert {field.name for field in fields(GenerateRequest)} - set(PROMPTS) <= known


def test_what_is_set_is_said_and_nothing_else() -> None:
    """A zero that was set differs from a field that was not."""
    request = GenerateRequest("m", prompt="hi", temperature=0.0, ignore_eos=False, stop=("a",), seed=2**64 - 1)

    assert body(request) == {
        "model": "m",
        "prompt": "hi",
        "temperature": 0.0,
        "ignore_eos": False,
        "stop": ["a"],
        "seed": 2**64 - 1,
    }


def test_biases_and_log_probabilities_are_said_in_the_words_of_http() -> None:
    """An object by ids; a number of likeliest tokens, which a chat has beside a switch."""
    biased = GenerateRequest("m", prompt="hi", logit_bias=(TokenBias(7, -1.5),), logprobs=2, allowed_token_ids=(7,))
    chat = GenerateRequest("m", messages=(ChatMessage("user", "hi"),), logprobs=0)

    assert body(biased) == {
        "model": "m",
        "prompt": "hi",
        "logit_bias": {"7": -1.5},
        "logprobs": 2,
        "allowed_token_ids": [7],
    }
    assert body(chat) | {"messages": []} == {"model": "m", "messages": [], "logprobs": True, "top_logprobs": 0}


def test_the_form_of_an_answer_is_said_in_the_words_of_http() -> None:
    """What is not set is left out of it, too: one that says nothing is no form."""
    choice = GenerateRequest("m", prompt="hi", structured_outputs=StructuredOutputs(choice=("a", "b")))
    nothing = GenerateRequest("m", prompt="hi", structured_outputs=StructuredOutputs())

    assert body(choice)["structured_outputs"] == {"choice": ["a", "b"]}
    assert body(nothing)["structured_outputs"] == {}


def test_messages_make_a_chat_and_ids_a_completion() -> None:
    """The two endpoints of HTTP are one method here."""
    chat, _ = http_body(GenerateRequest("m", messages=(ChatMessage("user", "hi"),)), stream=False, left_s=None)
    completion, payload = http_body(GenerateRequest("m", prompt_ids=(5, 6)), stream=True, left_s=None)

    assert (chat, completion) == (Kind.CHAT, Kind.COMPLETION)
    assert json.loads(payload) == {"model": "m", "prompt": [5, 6], "stream": True}


def test_several_prompts_are_a_list_in_http() -> None:
    """Texts and ids, also beside each other; each is one of the two."""
    several = GenerateRequest("m", prompts=(RawPrompt("hi"), RawPrompt(ids=(5, 6))), echo=True, prompt_logprobs=0)

    assert body(several) == {"model": "m", "prompt": ["hi", [5, 6]], "echo": True, "prompt_logprobs": 0}
    for neither_nor in (RawPrompt(), RawPrompt("", (5,))):
        with pytest.raises(InvalidRequest, match="either text or ids") as raised:
            body(GenerateRequest("m", prompts=(RawPrompt("hi"), neither_nor)))
        assert raised.value.param == "prompt"


def test_variables_of_a_template_are_an_object_in_a_text() -> None:
    """All of it: nothing that follows gets into the body."""
    hi = (ChatMessage("user", "hi"),)
    chat = GenerateRequest("m", messages=hi, chat_template_kwargs='{"a": [1, {"b": 2.50}], "c": "\\u00e9"}')
    _, payload = http_body(chat, stream=False, left_s=None)

    assert b'"chat_template_kwargs":{"a":[1, {"b": 2.50}],"c":"\\u00e9"}' in payload
    asked = TokenizeRequest("m", messages=hi, chat_template_kwargs='{"a":1}', add_generation_prompt=False)
    told = tokenize_body(asked)
    assert (told.chat_template_kwargs, told.add_generation_prompt) == ({"a": msgspec.Raw(b"1")}, False)
    for text in ("", "{", "[]", "null", '{}, "priority": -100', '{"a": }', '{"a": 1}}', '{"a":' + "[" * 100_000):
        with pytest.raises(InvalidRequest) as raised:
            body(GenerateRequest("m", messages=hi, chat_template_kwargs=text))
        assert raised.value.param == "chat_template_kwargs"


def test_a_deadline_is_the_timeout() -> None:
    """However far away it is; one that has passed ends the call."""
    request = GenerateRequest("m", prompt="hi")

    assert body(request, left_s=2.5)["timeout"] == 2.5
    assert body(request, left_s=1e9)["timeout"] == 86_400
    with pytest.raises(DeadlineExceeded):
        body(request, left_s=-0.1)


@pytest.mark.parametrize(
    "request_", [GenerateRequest("m"), GenerateRequest("m", prompt="", messages=(ChatMessage("user", ""),))]
)
def test_one_kind_of_prompt_is_needed(request_: GenerateRequest) -> None:
    """None, or two of them, name the field."""
    with pytest.raises(InvalidRequest) as raised:
        body(request_)

    assert raised.value.param == "prompt"


async def test_whoever_watches_is_told_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the service is at once, then only what has changed; an unknown one is called so."""
    monkeypatch.setattr(rpc_server, "WATCH_S", 0.001)
    obstacle = "starting"
    health = rpc_server.Health(["s"], lambda: obstacle)
    told = health.Watch(health_pb2.HealthCheckRequest(service="s"), None)
    unknown = health.Watch(health_pb2.HealthCheckRequest(service="other"), None)

    assert (await anext(told)).status == health_pb2.HealthCheckResponse.NOT_SERVING
    obstacle = ""
    assert (await anext(told)).status == health_pb2.HealthCheckResponse.SERVING
    assert (await anext(unknown)).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    await told.aclose()
    await unknown.aclose()


def test_every_code_that_http_knows_has_a_status() -> None:
    """A new error is placed in both tables, or in neither."""
    assert set(errors_http.STATUS) - HTTP_ONLY == set(errors_grpc.STATUS) - {"malformed_message"}
    assert all(errors_grpc.status_of(kind("x")) in StatusCode for kind in all_kinds())


@pytest.mark.parametrize(
    ("error", "status", "pushback"),
    [
        (InvalidRequest("x", param="top_p"), StatusCode.INVALID_ARGUMENT, "-1"),
        (Unauthorized("x"), StatusCode.UNAUTHENTICATED, "-1"),
        (HeadraceError("x"), StatusCode.INTERNAL, "-1"),
        (Overloaded("x"), StatusCode.RESOURCE_EXHAUSTED, "later"),
        (Unavailable("x"), StatusCode.UNAVAILABLE, "later"),
    ],
)
def test_a_client_is_told_whether_to_come_back(error: HeadraceError, status: StatusCode, pushback: str) -> None:
    """As HTTP tells it."""
    trailers = dict(errors_grpc.trailers_of(error))

    assert errors_grpc.status_of(error) is status
    assert trailers["headrace-code"] == error.code
    assert trailers.get("headrace-param") == error.param
    wait_ms = trailers["grpc-retry-pushback-ms"]
    assert wait_ms == "-1" if pushback == "-1" else int(wait_ms) >= 750
