"""What a request says about the form of its answer, in any of three ways, as one grammar. Pure.

Whether it compiles is found out by a tokenizer; here it is only told apart, and held to what it may weigh.
"""

import re
from typing import Final

import msgspec

from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import MAX_GRAMMAR_BYTES, Grammar
from services.gateway.schemas import ABSENT, Body, JsonSchema, ResponseFormat, StructuredOutputs, is_neutral

ANY_OBJECT: Final = b'{"type":"object"}'
BLANKS: Final = r"[ \n\r\t]{1,16}"  # between two elements of JSON: bounded, for some models never stop
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GUIDED: Final = ("json", "regex", "choice", "grammar")


def grammar_of(body: Body) -> Grammar | None:
    """None where any text will do. Raises InvalidRequest that names the field."""
    grammars = [
        grammar
        for grammar in (
            _of_format(body.response_format),
            _of_structured("structured_outputs", body.structured_outputs),
            _of_guided(body),
        )
        if grammar is not None
    ]
    if not grammars:
        return None
    if len(grammars) > 1:
        first, second, *_ = grammars
        raise InvalidRequest(f"{second.field} cannot be combined with {first.field}", param=second.field)
    if len(grammars[0].source.encode()) > MAX_GRAMMAR_BYTES:
        field = grammars[0].field
        raise InvalidRequest(f"{field} must not be longer than {MAX_GRAMMAR_BYTES} bytes", param=field)
    return grammars[0]


def _of_format(wanted: ResponseFormat | None) -> Grammar | None:
    if wanted is None or wanted.type == "text":
        return None
    field = "response_format"
    match wanted.type:
        case "json_object":
            return Grammar("json_schema", ANY_OBJECT.decode(), field, BLANKS)
        case "json_schema" if wanted.json_schema is not None:
            return _of_schema(wanted.json_schema, field)
        case "json_schema":
            raise InvalidRequest("response_format.json_schema is missing", param=field)
        case _:
            raise InvalidRequest("response_format.type must be text, json_object or json_schema", param=field)


def _of_schema(wanted: JsonSchema, field: str) -> Grammar:
    if not NAME.fullmatch(wanted.name):
        raise InvalidRequest(
            "response_format.json_schema.name must be 1 to 64 letters, digits, underscores or hyphens", param=field
        )
    return Grammar("json_schema", msgspec.json.encode(wanted.schema).decode(), field, BLANKS)


def _of_guided(body: Body) -> Grammar | None:
    """The names that vLLM had before: the field is the constraint."""
    given = [f"guided_{kind}" for kind in GUIDED if getattr(body, f"guided_{kind}") is not None]
    blanks = "guided_whitespace_pattern"
    if not given:
        if body.guided_whitespace_pattern is not None:
            raise InvalidRequest(f"{blanks} needs guided_json", param=blanks)
        return None
    return _of_structured(
        given[0],
        StructuredOutputs(
            json=body.guided_json,
            regex=body.guided_regex,
            choice=body.guided_choice,
            grammar=body.guided_grammar,
            whitespace_pattern=body.guided_whitespace_pattern,
        ),
    )


def _of_structured(field: str, wanted: StructuredOutputs | None) -> Grammar | None:
    if wanted is None or wanted == StructuredOutputs():
        return None
    if wanted.structural_tag is not ABSENT and not is_neutral(wanted.structural_tag, ()):
        raise InvalidRequest(f"{field}: structural_tag is not supported", param=field)
    if wanted.disable_additional_properties:
        raise InvalidRequest(f"{field}: disable_additional_properties is not supported", param=field)
    given = [kind for kind in (*GUIDED, "json_object") if getattr(wanted, kind) is not None]
    if len(given) != 1:
        raise InvalidRequest(f"{field}: exactly one of json, regex, choice, grammar and json_object", param=field)
    kind = given[0]
    source = getattr(wanted, kind)
    if not source:
        raise InvalidRequest(f"{field}: {kind} must not be empty", param=field)
    if kind not in ("json", "json_object"):
        if wanted.whitespace_pattern is not None:
            raise InvalidRequest(f"{field}: a whitespace pattern goes with JSON alone", param=field)
        return Grammar(kind, source if isinstance(source, str) else msgspec.json.encode(source).decode(), field)
    schema = ANY_OBJECT if kind == "json_object" else _schema_json(field, source)
    return Grammar("json_schema", schema.decode(), field, _blanks(field, wanted))


def _schema_json(field: str, schema: object) -> bytes:
    """A schema comes as it is, or once more in a string."""
    if isinstance(schema, str):
        try:
            schema = msgspec.json.decode(schema, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest(f"{field}: json is not a schema: {error}", param=field) from error
    return msgspec.json.encode(schema)


def _blanks(field: str, wanted: StructuredOutputs) -> str:
    if wanted.disable_any_whitespace:
        return ""
    if wanted.whitespace_pattern == "":
        raise InvalidRequest(f"{field}: a whitespace pattern must not be empty", param=field)
    return BLANKS if wanted.whitespace_pattern is None else wanted.whitespace_pattern
