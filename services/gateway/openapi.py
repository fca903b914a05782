"""GET /openapi.json: each route with its body, answers and errors, of the types that decode and write them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from services.gateway import openapi_answers as answers
from services.gateway import schemas
from services.gateway.errors_http import STATUS
from services.gateway.limits import Limits
from services.gateway.openapi_fields import Keywords, request_fields
from services.gateway.tokens import NEUTRAL as NEUTRAL_TOKENIZE
from services.gateway.tokens import DetokenizeBody, TokenizeBody

REF = "#/components/schemas/{name}"
GENERATES = (400, 401, 403, 404, 408, 413, 415, 429, 500, 503, 504)  # statuses of what goes to the services behind
LOOKS_UP = (401, 403)
READS = (400, 401, 403, 404, 408, 413, 415, 503)
BODIES = (schemas.ChatBody, schemas.CompletionBody)
PUBLIC: dict[str, Any] = {"security": []}


def openapi(models: Sequence[Limits], names: Sequence[str], version: str) -> bytes:
    """The document: bounds are those of the model that allows most; `names` are those that the models go by."""
    components = _components(models)
    for body in BODIES:
        components[body.__name__]["properties"]["model"]["enum"] = list(names)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": version, "description": "docs/api.md says what each field does."},
        "security": [{"key": []}],
        "paths": dict(_paths()),
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }
    return msgspec.json.encode(document)


def _paths() -> Iterable[tuple[str, Mapping[str, Any]]]:
    chat, text = answers.ChatCompletion, answers.TextCompletion
    yield "/v1/chat/completions", {"post": _operation(chat, GENERATES, schemas.ChatBody, streams=True)}
    yield "/v1/completions", {"post": _operation(text, GENERATES, schemas.CompletionBody, streams=True)}
    yield "/v1/models", {"get": _operation(answers.ModelList, LOOKS_UP)}
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    yield "/v1/models/{model}", {"get": {**_operation(answers.ModelCard, (*LOOKS_UP, 404)), "parameters": [name]}}
    yield "/tokenize", {"post": _operation(answers.Tokenized, READS, TokenizeBody)}
    yield "/detokenize", {"post": _operation(answers.Detokenized, READS, DetokenizeBody)}
    yield "/tokenizer_info", {"get": _operation(answers.TokenizerInfo, LOOKS_UP)}
    yield "/version", {"get": _operation(answers.Version, LOOKS_UP)}
    yield "/openapi.json", {"get": {"responses": {"200": {"description": "This."}, **_errors(LOOKS_UP)}}}
    metrics = {"description": "Prometheus text, or OpenMetrics for who accepts it.", "content": {"text/plain": {}}}
    yield "/metrics", {"get": {"responses": {"200": metrics, **_errors(LOOKS_UP)}}}
    for path in ("/live", "/health", "/ready"):
        states = {status: _json("ok" if status == "200" else "not now", answers.State) for status in ("200", "503")}
        yield path, {"get": {**PUBLIC, "responses": states if path != "/live" else {"200": states["200"]}}}


def _operation(
    answer: type[Struct], errors: Iterable[int], body: type[Struct] | None = None, *, streams: bool = False
) -> dict[str, Any]:
    good = _json("ok", answer)
    if streams:
        good["content"]["text/event-stream"] = {}
    operation: dict[str, Any] = {"responses": {"200": good, **_errors(errors)}}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    return operation


def _errors(statuses: Iterable[int]) -> dict[str, Any]:
    """By status, with the codes that it may have."""
    codes: dict[int, list[str]] = {}
    for code, (status, _) in STATUS.items():
        codes.setdefault(status, []).append(code)
    return {str(status): _json(", ".join(codes.get(status, ["internal"])), answers.ErrorAnswer) for status in statuses}


def _json(description: str, answer: type[Struct]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref(answer)}}}


def _ref(kind: type[Struct]) -> dict[str, str]:
    return {"$ref": REF.format(name=kind.__name__)}


def _components(models: Sequence[Limits]) -> dict[str, Any]:
    given = [kind for kind in vars(answers).values() if isinstance(kind, type) and issubclass(kind, answers.Answer)]
    _, found = msgspec.json.schema_components(given, ref_template=REF)
    twins = _Twins()
    bodies = [twins.of(kind) for kind in (schemas.ChatBody, schemas.CompletionBody, TokenizeBody, DetokenizeBody)]
    _, told = msgspec.json.schema_components(bodies, ref_template=REF)
    neutral: Mapping[str, tuple[type[Struct], Mapping[str, tuple[Any, ...]]]] = {
        "ChatBody": (schemas.ChatBody, schemas.NEUTRAL_CHAT),
        "CompletionBody": (schemas.CompletionBody, schemas.NEUTRAL_COMPLETION),
        "TokenizeBody": (TokenizeBody, NEUTRAL_TOKENIZE),
        "Message": (schemas.Message, {"tool_calls": ([],)}),
    }
    for name, (kind, values) in neutral.items():
        bounds = request_fields(models, is_chat=kind is schemas.ChatBody) if issubclass(kind, schemas.Body) else {}
        told[name]["properties"] = dict(_properties(kind, told[name]["properties"], values, bounds))
    return found | told


def _properties(
    kind: type[Struct], typed: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]], bounds: Mapping[str, Keywords]
) -> Iterable[tuple[str, Any]]:
    """A known field that is not supported may have the values that ask for nothing."""
    for member in msgspec.structs.fields(kind):
        if member.type is Raw:
            yield member.name, {"enum": [None, *neutral.get(member.name, ())], "description": "Not supported."}
        else:
            yield member.name, bounded(typed[member.name], bounds.get(member.name, {}))


def bounded(schema: Mapping[str, Any], keywords: Keywords) -> dict[str, Any]:
    """A field's schema with its keywords, those of values with each kind of value that it may be."""
    own = {name: value for name, value in keywords.items() if name in ("default", "description")}
    of_values = {name: value for name, value in keywords.items() if name not in own}
    rest = {name: value for name, value in schema.items() if name != "default"}
    if "anyOf" in rest:
        rest["anyOf"] = [option if option == {"type": "null"} else {**option, **of_values} for option in rest["anyOf"]]
        return {**rest, **own}
    return {**rest, **of_values, **own}


class _Twins:
    """Bodies without their raw fields, which have no schema and no default that could be written."""

    def __init__(self) -> None:
        self._known: dict[type[Struct], type[Struct]] = {}

    def of(self, kind: Any) -> Any:
        if kind is Raw:
            return Any
        if isinstance(kind, type) and issubclass(kind, Struct):
            if kind not in self._known:
                self._known[kind] = self._made(kind)
            return self._known[kind]
        parts = tuple(map(self.of, get_args(kind)))
        if get_origin(kind) in (Union, UnionType):
            return reduce(or_, parts)
        return get_origin(kind)[parts] if parts else kind

    def _made(self, kind: type[Struct]) -> type[Struct]:
        fields: list[Any] = []
        for member in msgspec.structs.fields(kind):
            if member.type is not Raw:
                default = () if member.required else (None,)
                fields.append((member.name, self.of(member.type), *default))
        return msgspec.defstruct(kind.__name__, fields, kw_only=True)
