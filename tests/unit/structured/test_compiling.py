"""What is taken as a grammar, what is refused with its reason, and that nothing but its texts can be drawn."""

import json
import random
import re

import pytest

from libs.contracts.errors import ConfigError, InvalidRequest
from libs.contracts.messages import MAX_GRAMMAR_BYTES, Grammar
from libs.structured import compiling
from libs.structured.resolve import RESOLVED, resolve
from libs.structured.vocabulary import open_vocabulary
from tests.unit.structured.walks import BLANKS, PADDED, Language, allowed
from tests.unit.text.small_model import BOS, EOS, THINK

SMALL = Language.small()


@pytest.mark.parametrize(
    ("kind", "source", "pattern"),
    [
        ("regex", "a+b?", "a+b?"),
        ("regex", "^abc$", "abc"),
        ("regex", "yes$|^no", "yes|no"),
        ("regex", "a/b", "a/b"),
        ("regex", "a\\\\", r"a\\"),
        ("regex", "([abc]*)*", "[abc]*"),
        ("regex", "((a|)*)*c", "a*c"),
        ("regex", "[^\\x00-\\x7f]{2}", r"[^\x00-\x7f]{2}"),
        ("choice", '["yes","no"]', "yes|no"),
        ("choice", '["","a"]', "a?"),
        ("choice", '["  two spaces first"]', "  two spaces first"),
        ("choice", '["<think>ok</think>1"]', "<think>ok</think>1"),
        ("grammar", "start: /[ab]/ start | /c/", "[ab]*c"),
        ("grammar", 'root ::= ("x" | [0-9])+ "!"', "[x0-9]+!"),
        ("json_schema", '{"type":"string","pattern":"^(yes)$|^(no)$"}', '"(yes|no)"'),
        ("json_schema", '{"type":"string","pattern":"^hi there\\\\!$"}', '"hi there!"'),
    ],
)
def test_answers_are_of_the_language(kind: str, source: str, pattern: str) -> None:
    """All of the answer matches, from its first byte to its last."""
    matcher, rng = SMALL.matcher(kind, source), random.Random(1)

    for _ in range(20):
        end, answer = SMALL.walk(matcher.deep_copy(), rng)
        assert end == "stop" and re.fullmatch(pattern, answer.decode()), answer


def test_strings_of_json_are_their_text_once_decoded() -> None:
    """Escaped or not, once: what the schema names is what a client reads."""
    texts = ["naïve", '€ "q" \\ \n', "公司上市"]
    matcher, rng = SMALL.matcher("json_schema", json.dumps({"enum": texts})), random.Random(5)

    answers = {json.loads(SMALL.walk(matcher.deep_copy(), rng)[1]) for _ in range(40)}

    assert answers == set(texts)


@pytest.mark.parametrize("text", ["🐈 猫 🧑‍🚀 龜", "“🐈”", "naïve 𝔘𝔫𝔦 ✅ ñandú", 'q"\\\b\f\n\t/', "\u2028\ufeff\ufdd0"])
def test_a_choice_is_written_byte_for_byte(text: str) -> None:
    """Tokens that are no UTF-8 alone make up characters, and nothing else can be drawn."""
    matcher = SMALL.matcher("choice", json.dumps([text], ensure_ascii=False))

    assert SMALL.walk(matcher, random.Random(2)) == ("stop", text.encode())


def test_a_choice_may_hold_any_character() -> None:
    """Also those that a grammar's own syntax is made of, controls, separators, and what is no character."""
    every = "".join(map(chr, [*range(0x300), *range(0x2000, 0x2070), *range(0xFDD0, 0xFDF0), *range(0xFFF0, 0x10000)]))
    for start in range(0, len(every), 100):
        text = every[start : start + 100]
        matcher = SMALL.matcher("choice", json.dumps([text], ensure_ascii=False))

        assert matcher.consume_tokens(SMALL.tokenizer.encode(text, add_special_tokens=False)), repr(text)
        assert matcher.is_accepting()


def test_ids_that_are_no_text_are_never_allowed() -> None:
    """Not the control tokens, not the padding of a wider model, and an end only where the answer is complete."""
    anything = SMALL.matcher("regex", "(?s).*")
    ids = set(allowed(anything).tolist())
    incomplete = SMALL.matcher("regex", "(?s).*x")

    assert BOS not in ids and EOS in ids and THINK in ids
    assert max(ids) < SMALL.tokenizer.vocab_size == SMALL.vocabulary.vocab_size - PADDED
    assert EOS not in allowed(incomplete)
    assert incomplete.consume_tokens(SMALL.tokenizer.encode("ax", add_special_tokens=False))
    assert EOS in allowed(incomplete)


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("json_schema", '{"type":"strng"}', "Invalid type: strng"),
        ("json_schema", '{"type":"object","properties":[]}', "properties must be an object"),
        ("json_schema", '{"type":"object","required":"a"}', "required"),
        ("json_schema", '{"enum":[]}', "Unsatisfiable"),
        ("json_schema", '{"$ref":"#/$defs/missing"}', "does not exist"),
        ("json_schema", '{"$ref":"http://example.com/x"}', "not present"),
        ("json_schema", '{"type":"array","minItems":3,"maxItems":1}', "Unsatisfiable"),
        ("json_schema", '{"not":{"type":"string"}}', '"not"'),
        ("json_schema", '{"type":"array","uniqueItems":true}', "uniqueItems"),
        ("json_schema", '{"if":{},"then":{}}', '"if"'),
        ("json_schema", '{"type":"object","x-guidance":{"lenient":true},"not":{}}', '"not"'),
        ("json_schema", '{"type":"string","format":"foo"}', "Unknown format"),
        ("json_schema", '{"oneOf":[{"type":"number"},{"type":"integer"}]}', "oneOf constraints are not supported"),
        ("json_schema", '{"type":"string","pattern":"^(?!x)a$"}', "look-around"),
        ("json_schema", '{"type":"string","pattern":"^(a)\\\\1$"}', "backreferences"),
        ("json_schema", '{"$ref":"#"}', "nothing matches"),
        ("json_schema", '{"$defs":{"A":{"$ref":"#/$defs/B"},"B":{"$ref":"#/$defs/A"}},"$ref":"#/$defs/A"}', "nothing"),
        ("json_schema", '{"type":"array","items":' * 5000 + "{}" + "}" * 5000, "recursion limit"),
        ("json_schema", '{"type":"string","pattern":"' + "(" * 60_000 + "a" + ")" * 60_000 + '"}', "regex parse error"),
        ("regex", "(", "unclosed group"),
        ("regex", "[z-a]", "invalid character class range"),
        ("regex", "a{3,1}", "invalid repetition"),
        ("regex", "(?<=x)y", "look-around"),
        ("regex", "ab\\", "middle of an escape"),
        ("grammar", "start: (", "start"),
        ("grammar", "root ::= root", "nothing matches"),
        ("grammar", "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, "recursion"),
        ("grammar", "not a grammar", "::="),
        ("choice", "[", "Expecting value"),
        ("banana", "", "unknown kind"),
        ("regex", "a" * (MAX_GRAMMAR_BYTES + 1), "longer"),
    ],
)
def test_what_is_no_grammar_is_refused_with_a_reason(kind: str, source: str, reason: str) -> None:
    """The field is named, the reason is short, and nothing is dropped to make it fit."""
    with pytest.raises(InvalidRequest, match=re.escape(reason)) as caught:
        SMALL.matcher(kind, source)

    assert caught.value.param == "structured_outputs" and len(caught.value.message) < 500
    assert "option" not in caught.value.message


def test_what_is_too_much_only_where_it_unfolds_is_found_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema of as many optional properties compiles, and after the first brace any of their names may follow."""
    monkeypatch.setattr(compiling, "ROW_MAX_ITEMS", 400)
    few, many = (
        resolve(
            Grammar(
                "json_schema",
                json.dumps({"type": "object", "properties": {f"p{i}": {} for i in range(count)}}),
                "f",
                BLANKS,
            )
        )
        for count in (50, 150)
    )
    compiling.try_out(compiling.compile_grammar(SMALL.vocabulary, few), few, [EOS])

    compiled = compiling.compile_grammar(SMALL.vocabulary, many)
    with pytest.raises(InvalidRequest, match="too much may follow"):
        compiling.try_out(compiled, many, [EOS])


def test_blanks_are_bounded() -> None:
    """A model that loves them must go on: whatever is drawn, no more than 16 stand together."""
    matcher = SMALL.matcher("json_schema", '{"type":"object","properties":{"q":{"enum":["a"]}},"required":["q"]}')
    space = SMALL.tokenizer.encode(" ", add_special_tokens=False)[0]
    run = 0
    assert matcher.consume_tokens(SMALL.tokenizer.encode("{", add_special_tokens=False))

    while space in allowed(matcher):
        assert matcher.consume_token(space)
        run += 1

    assert run == 16


def test_without_blanks_json_is_compact() -> None:
    """Nothing stands between two elements."""
    matcher = SMALL.matcher("json_schema", '{"type":"array","items":{"const":1},"minItems":2,"maxItems":2}', blanks="")

    assert SMALL.walk(matcher, random.Random(4)) == ("stop", b"[1,1]")


def test_a_grammar_resolves_to_the_same_text_each_time() -> None:
    """What a tokenizer has checked is what each worker compiles."""
    grammar = Grammar("grammar", 'root ::= "a" x\nx ::= [b-c]*', "guided_grammar")
    resolved = resolve(grammar)

    assert resolved == resolve(grammar)
    assert (resolved.kind, resolved.field, resolved.blanks) == (RESOLVED, "guided_grammar", "")


def test_a_model_without_an_end_has_no_vocabulary() -> None:
    """Nothing could say that an answer is complete."""
    with pytest.raises(ConfigError):
        open_vocabulary(SMALL.tokenizer, (), SMALL.tokenizer.vocab_size)
