"""Whatever is drawn, an answer that ends by `stop` is what its schema validates."""

import json
import random
from typing import Any

import jsonschema
import pytest

from cli.models import cache_root
from libs.engine.gguf_convert import ensure_default_model
from libs.text.tokenizer import Tokenizer
from tests.unit.structured.schemas import Schema, schemas
from tests.unit.structured.walks import Language

TOKENS = 300
SCHEMAS = tuple(schemas())


def stopped(language: Language, schema: Schema, rng: random.Random, walks: int) -> int:
    """How many of so many random answers ended by `stop`; the schema validates each of them."""
    matcher, validator, stops = language.matcher("json_schema", json.dumps(schema)), _validator(schema), 0
    for _ in range(walks):
        end, answer = language.walk(matcher.deep_copy(), rng, TOKENS, haste=rng.choice((0.1, 0.5, 0.9)))
        if end == "stop":
            validator.validate(json.loads(answer.decode()))
            stops += 1
    return stops


def _validator(schema: Schema) -> Any:
    formats = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(schema, format_checker=formats)


def test_an_answer_that_stops_validates() -> None:
    """By more than two hundred schemas, over a small vocabulary; nearly every answer comes to its end."""
    language, rng = Language.small(), random.Random(1)

    stops = sum(stopped(language, schema, rng, walks=2) for schema in SCHEMAS)

    assert len(SCHEMAS) >= 200
    assert stops > 1.5 * len(SCHEMAS)


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_an_answer_of_the_real_vocabulary_validates() -> None:
    """The same over the tokens of the default model, many times each."""
    language, rng = Language.of(Tokenizer.from_dir(ensure_default_model(cache_root()))), random.Random(2)

    stops = sum(stopped(language, schema, rng, walks=10) for schema in SCHEMAS)

    assert stops > 5 * len(SCHEMAS)
