"""The form that a client wants of an answer, in whichever way it says so, is one grammar, or one field to blame."""

from typing import Any

import pytest

from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import MAX_GRAMMAR_BYTES, Grammar
from services.gateway.structured import ANY_OBJECT, BLANKS
from tests.unit.gateway.test_validate import chat, complete

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"$ref": "#/$defs/x"}}}
SCHEMA_JSON = '{"type":"object","properties":{"b":{"type":"integer"},"a":{"$ref":"#/$defs/x"}}}'


def schema_format(**changes: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, **changes}}


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"structured_outputs": {}}, None),
        ({"structured_outputs": {"disable_fallback": True, "regex": "a"}}, Grammar("regex", "a", "structured_outputs")),
        (
            {"response_format": {"type": "json_object"}},
            Grammar("json_schema", ANY_OBJECT.decode(), "response_format", BLANKS),
        ),
        ({"response_format": schema_format()}, Grammar("json_schema", SCHEMA_JSON, "response_format", BLANKS)),
        (
            {"response_format": schema_format(strict=True, description="d")},
            Grammar("json_schema", SCHEMA_JSON, "response_format", BLANKS),
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " ?"}},
            Grammar("json_schema", SCHEMA_JSON, "structured_outputs", " ?"),
        ),
        (
            {"structured_outputs": {"json": SCHEMA_JSON, "disable_any_whitespace": True}},
            Grammar("json_schema", SCHEMA_JSON, "structured_outputs", ""),
        ),
        (
            {"structured_outputs": {"json_object": True}},
            Grammar("json_schema", ANY_OBJECT.decode(), "structured_outputs", BLANKS),
        ),
        ({"structured_outputs": {"choice": ["a", "🐈"]}}, Grammar("choice", '["a","🐈"]', "structured_outputs")),
        ({"structured_outputs": {"grammar": "start: /a/"}}, Grammar("grammar", "start: /a/", "structured_outputs")),
        ({"guided_json": SCHEMA}, Grammar("json_schema", SCHEMA_JSON, "guided_json", BLANKS)),
        (
            {"guided_json": SCHEMA_JSON, "guided_whitespace_pattern": " "},
            Grammar("json_schema", SCHEMA_JSON, "guided_json", " "),
        ),
        ({"guided_regex": "a+"}, Grammar("regex", "a+", "guided_regex")),
        ({"guided_choice": ["x"]}, Grammar("choice", '["x"]', "guided_choice")),
        ({"guided_grammar": "root ::= x"}, Grammar("grammar", "root ::= x", "guided_grammar")),
        ({"response_format": {"type": "text"}, "guided_regex": "a"}, Grammar("regex", "a", "guided_regex")),
    ],
)
def test_every_way_to_ask_for_a_form_is_one_grammar(fields: dict[str, Any], grammar: Grammar | None) -> None:
    """Both doors alike; a schema keeps the order of its properties, which is that of the answer."""
    assert chat(**fields).params.grammar == grammar
    assert complete(**fields).params.grammar == grammar


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "banana"}}, "response_format"),
        ({"response_format": {}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "s"}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "response_format"),
        ({"response_format": schema_format(name="")}, "response_format"),
        ({"response_format": schema_format(name="a b")}, "response_format"),
        ({"response_format": schema_format(name="x" * 65)}, "response_format"),
        ({"response_format": schema_format(schema="not a schema")}, "response_format"),
        ({"response_format": schema_format(schema=True)}, "response_format"),
        ({"response_format": schema_format(strict="yes")}, "response_format"),
        ({"response_format": schema_format(schema={"x": "y" * MAX_GRAMMAR_BYTES})}, "response_format"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"structured_outputs": {"json": ""}}, "structured_outputs"),
        ({"structured_outputs": {"json": "["}}, "structured_outputs"),
        ({"structured_outputs": {"json": "[]"}}, "structured_outputs"),
        ({"structured_outputs": {"json": True}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": ""}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"], "regex": "b"}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": {"x": 1}}}, "structured_outputs"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "structured_outputs"),
        ({"structured_outputs": {"json": {}, "whitespace_pattern": ""}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"a": 1}, "disable_additional_properties": True}}, "structured_outputs"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex"),
        ({"guided_json": 3}, "guided_json"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
        ({"guided_decoding_backend": "xgrammar"}, "guided_decoding_backend"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
    ],
)
def test_a_form_that_says_nothing_or_too_much_names_its_field(fields: dict[str, Any], param: str) -> None:
    """What is set and selects nothing is an error, never text without a form."""
    with pytest.raises(InvalidRequest) as caught:
        chat(**fields)

    assert caught.value.param == param
