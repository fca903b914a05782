"""A client's grammar in the one form that the library compiles. Pure: the same text for the same grammar."""

import json

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import MAX_GRAMMAR_BYTES, Grammar

RESOLVED = "llguidance"  # the kind of a grammar that was resolved
MAX_REASON_CHARS = 400


class GrammarRefused(InvalidRequest):
    """Not a grammar, more than is supported, or more than is affordable; the message says which."""

    def __init__(self, grammar: Grammar, reason: str) -> None:
        shown = " ".join(reason.split())
        if len(shown) > MAX_REASON_CHARS:
            shown = shown[:MAX_REASON_CHARS] + " …"
        super().__init__(f"{grammar.field}: {shown}", param=grammar.field)


def resolve(grammar: Grammar) -> Grammar:
    """`grammar` in the library's form, not compiled yet. Raises GrammarRefused."""
    if len(grammar.source.encode()) > MAX_GRAMMAR_BYTES:
        raise GrammarRefused(grammar, f"must not be longer than {MAX_GRAMMAR_BYTES} bytes")
    try:
        return Grammar(RESOLVED, _text(grammar), grammar.field)
    except (ValueError, RecursionError) as error:
        raise GrammarRefused(grammar, str(error)) from error


def _text(grammar: Grammar) -> str:
    match grammar.kind:
        case "json_schema":
            return _of_schema(grammar)
        case "regex":
            return _of_regex(grammar.source)
        case "choice":
            return LLMatcher.grammar_from_lark("start: " + " | ".join(map(_literal, json.loads(grammar.source))))
        case "grammar":
            return _of_grammar(grammar)
        case kind:
            raise ValueError(f"unknown kind of grammar: {kind!r}")


def _of_schema(grammar: Grammar) -> str:
    """All options are given, for a schema may bring its own; `lenient` would let unsupported keywords pass."""
    return LLMatcher.grammar_from_json_schema(
        grammar.source,
        overrides={
            "item_separator": ",",
            "key_separator": ":",
            "whitespace_flexible": False,
            "whitespace_pattern": grammar.blanks or None,
            "coerce_one_of": False,
            "lenient": False,
        },
    )


def _of_regex(pattern: str) -> str:
    """A pattern becomes a terminal between slashes, the second of which a backslash before it would take away."""
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise ValueError("the pattern ends in the middle of an escape")
    return LLMatcher.grammar_from_regex(pattern)


def _literal(text: str) -> str:
    """A string of Lark: as one of JSON, but for one more character that must not stand for itself."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _of_grammar(grammar: Grammar) -> str:
    try:
        return LLMatcher.grammar_from_lark(any_to_lark(grammar.source))
    except Exception as error:  # its parser raises whatever it meets
        raise ValueError(f"{error or 'the grammar is nested too deeply'}") from error
