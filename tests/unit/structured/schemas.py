"""Two hundred schemas and more: each keyword that is supported alone, with its bounds, and in company."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

Schema = dict[str, Any]

STRINGS: tuple[Schema, ...] = (
    {},
    {"minLength": 2, "maxLength": 4},
    {"maxLength": 0},
    {"minLength": 3},
    {"pattern": "^[a-c]{2,3}$"},
    {"pattern": "b"},
    {"pattern": "^(yes)$|^(no)$"},
    {"pattern": "^\\d{3}-[A-F]+$"},
    {"pattern": '^[^"\\\\]*$', "maxLength": 5},
    {"pattern": "^a*b*$", "minLength": 2, "maxLength": 5},
    {"pattern": "ä|ß", "maxLength": 6},
    {"format": "date"},
    {"format": "time"},
    {"format": "date-time"},
    {"format": "email"},
    {"format": "ipv4"},
    {"format": "uuid"},
    {"enum": ["a", "b c", 'q"uote', "back\\slash", "new\nline", "naïve", "🐈"]},
    {"const": "公司上市"},
)
INTEGERS: tuple[Schema, ...] = (
    {},
    {"minimum": 0},
    {"maximum": -1},
    {"minimum": 7, "maximum": 7},
    {"minimum": -12, "maximum": 345},
    {"exclusiveMinimum": 0, "exclusiveMaximum": 100},
    {"minimum": 95, "maximum": 1005},
    {"multipleOf": 5},
    {"multipleOf": 3, "minimum": 10, "maximum": 40},
    {"enum": [1, -2, 300]},
    {"minimum": 0.5, "maximum": 9.5},
)
NUMBERS: tuple[Schema, ...] = (
    {},
    {"minimum": 0},
    {"minimum": -1.5, "maximum": 1.5},
    {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"maximum": -0.25},
    {"multipleOf": 0.5},
    {"const": 1.5},
)
ITEMS: tuple[Schema, ...] = (
    {"type": "integer"},
    {"type": "string", "maxLength": 3},
    {"enum": ["red", "green"]},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
)
LENGTHS: tuple[Schema, ...] = ({}, {"minItems": 2}, {"maxItems": 1}, {"minItems": 2, "maxItems": 3}, {"maxItems": 0})
FIELDS: tuple[tuple[str, Schema], ...] = (
    ("n", {"type": "integer", "minimum": 0, "maximum": 99}),
    ("s", {"type": "string", "maxLength": 4}),
    ("e", {"enum": ["x", 1, None, True]}),
    ("l", {"type": "array", "items": {"type": "integer"}, "maxItems": 2}),
    ("o", {"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": False}),
    ("ü key", {"type": ["string", "null"], "maxLength": 2}),
)
MORE: tuple[Any, ...] = (False, {"type": "boolean"}, {"type": "integer"})
OTHERS: tuple[Schema, ...] = (
    {"type": "boolean"},
    {"type": "null"},
    {"type": "object"},
    {"type": "array"},
    {},
    {"type": ["integer", "boolean"]},
    {"type": ["object", "null"], "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"enum": [1, "a", None, {"a": [1]}, [True, 2.5]]},
    {"const": None},
    {"const": {"a": 1, "b": [2]}},
    {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]},
    {"anyOf": [{"type": "object", "properties": {"k": {"const": k}}, "required": ["k"]} for k in ("a", "b")]},
    {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}, {"type": "null"}]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 8}]},
    {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}}}]},
    {"type": "array", "prefixItems": [{"type": "string", "maxLength": 1}, {"type": "integer"}], "items": False},
    {"type": "array", "prefixItems": [{"const": 1}], "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"], "additionalProperties": True},
    {"$defs": {"c": {"enum": ["red", "green"]}}, "type": "array", "items": {"$ref": "#/$defs/c"}, "minItems": 1},
    {"definitions": {"c": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/definitions/c"}, "maxItems": 2},
    {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                },
                "required": ["v", "kids"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/node",
    },
    {
        "title": "Annotated",
        "description": "d",
        "default": 1,
        "examples": [2],
        "deprecated": True,
        "readOnly": True,
        "$comment": "c",
        "x-unknown": {"not": "a keyword"},
        "type": "integer",
    },
)


def schemas() -> Iterator[Schema]:
    yield from ({"type": "string", **rest} if "enum" not in rest else rest for rest in STRINGS)
    yield from ({"type": "integer", **rest} for rest in INTEGERS)
    yield from ({"type": "number", **rest} for rest in NUMBERS)
    yield from ({"type": "array", "items": items, **length} for items in ITEMS for length in LENGTHS)
    for size in (1, 2, 3):
        for some in combinations(FIELDS, size):
            names = [name for name, _ in some]
            for required in (names, names[:1], []):
                yield {
                    "type": "object",
                    "properties": dict(some),
                    "required": required,
                    "additionalProperties": MORE[len(names[-1]) % len(MORE)],
                }
    yield from OTHERS
