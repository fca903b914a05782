"""What /openapi.json says is what is done, of fields, bounds, answers, errors and routes; docs/api.md says the same."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from libs.contracts.errors import HeadraceError, InvalidRequest
from services.gateway import openapi_answers as answers
from services.gateway import schemas
from services.gateway.errors_http import STATUS
from services.gateway.limits import Limits
from services.gateway.openapi import openapi
from services.gateway.openapi_fields import request_fields
from services.gateway.validate import Kind, validate
from tests.unit.gateway.conftest import CATALOG, LIMITS, Gateway

DOCS = Path(__file__).parents[3] / "docs" / "api.md"
NUMBERS = ("minimum", "maximum", "exclusiveMinimum")
BODIES: dict[Kind, type[schemas.Body]] = {Kind.CHAT: schemas.ChatBody, Kind.COMPLETION: schemas.CompletionBody}
GIVEN: dict[Kind, dict[str, Any]] = {
    Kind.CHAT: {"model": LIMITS.model, "messages": [{"role": "user", "content": "hi"}]},
    Kind.COMPLETION: {"model": LIMITS.model, "prompt": "hi"},
}
ALONG: dict[str, dict[str, Any]] = {  # what a bound needs beside it
    "beam_width": {"use_beam_search": True},
    "length_penalty": {"use_beam_search": True},
    "top_logprobs": {"logprobs": True},
    "min_tokens": {"max_tokens": LIMITS.max_model_len},
}


@cache
def document() -> Any:
    return json.loads(openapi([LIMITS], [LIMITS.model], "0"))


def _typed(kind: Kind) -> dict[str, Any]:
    """Fields that are served, with their keywords."""
    bounds = request_fields([LIMITS], is_chat=kind is Kind.CHAT)
    names = [field.name for field in msgspec.structs.fields(BODIES[kind]) if field.type is not Raw]
    return {name: bounds[name] for name in names}


def _numeric() -> list[tuple[Kind, str, str]]:
    fields = [(kind, name, words) for kind in Kind for name, words in _typed(kind).items()]
    return [(kind, name, keyword) for kind, name, words in fields for keyword in NUMBERS if keyword in words]


def _accepts(kind: Kind, name: str, value: Any) -> bool:
    along = ALONG.get(name, {}) if value else {}
    body = {**GIVEN[kind], **along, name: value}
    try:
        validate(kind, msgspec.json.encode(body), CATALOG)
    except InvalidRequest as error:
        assert error.param == name, error.message
        return False
    return True


@pytest.mark.parametrize("kind, name, keyword", _numeric())
def test_each_bound_holds_and_nothing_beyond_it(kind: Kind, name: str, keyword: str) -> None:
    """At the bound it is taken, one step beyond it is refused by the field's name."""
    bound = _typed(kind)[name][keyword]
    step = 1 if isinstance(bound, int) and name not in ("temperature", "top_p", "min_p") else 0.001
    beyond = bound + step if keyword == "maximum" else bound - step
    if keyword == "exclusiveMinimum":
        beyond, bound = bound, bound + 0.001
    assert _accepts(kind, name, bound)
    assert not _accepts(kind, name, beyond)


@pytest.mark.parametrize("kind, name", [(kind, name) for kind in Kind for name in _typed(kind)])
def test_each_list_has_a_bound(kind: Kind, name: str) -> None:
    """As many as are said, and no more."""
    words = _typed(kind)[name]
    if "maxItems" not in words:
        return
    one = {"messages": GIVEN[Kind.CHAT]["messages"][0], "stop": "x", "bad_words": "x"}.get(name, 1)
    assert _accepts(kind, name, [one] * words["maxItems"])
    assert not _accepts(kind, name, [one] * (words["maxItems"] + 1))


@pytest.mark.parametrize("kind", Kind)
def test_every_default_is_what_leaving_a_field_out_does(kind: Kind) -> None:
    """The same request either way."""
    for name, words in _typed(kind).items():
        if "default" in words:
            plain, told = (
                validate(kind, msgspec.json.encode(body), CATALOG, draw_seed=lambda: 7)
                for body in (GIVEN[kind], {**GIVEN[kind], name: words["default"]})
            )
            assert plain == told, name


def test_the_document_names_every_field_of_a_body() -> None:
    """Those that are not supported with the values that ask for nothing."""
    for kind in BODIES.values():
        told = document()["components"]["schemas"][kind.__name__]
        assert set(told["properties"]) == {field.name for field in msgspec.structs.fields(kind)}
        for name in schemas.raw_fields(kind):
            assert None in told["properties"][name]["enum"]


def test_the_document_has_every_error_and_route() -> None:
    """Each code under its status; each path that is routed, and no other."""
    told = document()["paths"]["/v1/completions"]["post"]["responses"]
    for code, (status, _) in STATUS.items():
        if code not in ("not_found", "method_not_allowed"):
            assert code in told[str(status)]["description"], code
    routes = set(re.findall(r'Route\(\s*"([^"]+)"', (DOCS.parents[1] / "services/gateway/app.py").read_text()))
    assert {path.replace(":path", "") for path in routes} == set(document()["paths"])


def test_the_page_and_the_document_name_the_same_fields() -> None:
    """Each field has a row, and each row is a field."""
    served, refused = DOCS.read_text(encoding="utf-8").split("**Known, not supported.**")
    served = served.partition("## Fields of a request")[2]
    cells = "".join(re.findall(r"^\| (`[^|]+)\|", served, re.MULTILINE))
    rows = set(re.findall(r"`(\w+)", cells))
    table = re.findall(r"^\| (`[^|]+)\|", refused.partition("Every other field")[0], re.MULTILINE)
    listed = {name for row in table for name in re.findall(r"`(\w+)`", row)}
    typed = {name for kind in Kind for name in _typed(kind)}
    told = set(
        re.findall(r"`(\w+)", served + refused.partition("## The answer")[0].partition("## The form of an answer")[2])
    )
    assert rows <= typed <= told
    assert listed - typed == {name for kind in BODIES.values() for name in schemas.raw_fields(kind)} - typed


async def test_real_answers_are_of_the_documented_types(gateway: Gateway) -> None:
    """No field more, none less; whole answers, errors, models, states."""
    for make, kind in ((gateway.chat, answers.ChatCompletion), (gateway.complete, answers.TextCompletion)):
        call = make(return_token_ids=True, max_tokens=2)
        request = await gateway.taken()
        assert await gateway.backend.accept(request)
        await gateway.backend.tokens(request, 0, [5, 6], "length")
        msgspec.json.decode(await call.whole(), type=kind)
    got: dict[str, type[msgspec.Struct]] = {
        "/v1/models": answers.ModelList,
        "/version": answers.Version,
        "/ready": answers.State,
        "/tokenizer_info": answers.TokenizerInfo,
        "/nope": answers.ErrorAnswer,
    }
    for path, answer in got.items():
        msgspec.json.decode(await gateway.call(path, method="GET").whole(), type=answer)
    detokenized = gateway.call("/detokenize", {"tokens": [5]})
    msgspec.json.decode(await detokenized.whole(), type=answers.Detokenized)
    call = gateway.call("/openapi.json", method="GET")
    assert json.loads(await call.whole())["openapi"] == "3.1.0"


def test_a_model_with_other_limits_has_other_bounds() -> None:
    """Ids are those of its vocabulary, choices as many as its server allows."""
    fields = request_fields([Limits("m", 10, 77, 3), Limits("o", 20, 50, 3)], is_chat=True)
    assert fields["stop_token_ids"]["items"]["maximum"] == 76 and fields["n"]["maximum"] == 3
    assert fields["min_tokens"]["maximum"] == 20
    assert issubclass(InvalidRequest, HeadraceError)
