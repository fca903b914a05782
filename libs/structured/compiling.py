"""Compiles a resolved grammar under fixed limits, the same wherever it is compiled.

The library does not raise: a matcher has an error state, and stays in it.
"""

import re
from collections.abc import Collection

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from libs.contracts.messages import Grammar
from libs.structured.resolve import GrammarRefused

# Work is counted, not timed, so a grammar that passed once passes again. Rates are the library's own figures.
INITIAL_LEXER_FUEL = 1_000_000  # of compiling: about 20 ms, but up to 0.6 s for a pattern made to take long
STEP_LEXER_FUEL = 50_000  # of one mask: about 4 ms; common schemas need less than a sixth
STEP_MAX_ITEMS = 20_000  # of one mask: about 1 ms
ROW_MAX_ITEMS = 8_000  # that may begin at one place: a quarter is what as many optional properties need
MAX_LEXER_STATES = 40_000  # of all answers that share a compiled grammar: about 32 MB
MAX_GRAMMAR_SYMBOLS = 200_000
TRIED_TOKENS = 32
ADVICE = re.compile(r"[.;] (Enable|either increase|consider|try) .*", re.DOTALL)  # to whoever calls the library


def compile_grammar(vocabulary: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """A matcher at the start of an answer, to be copied for each. Without the GIL while the library works.

    Args:
        grammar: resolved.

    Raises: GrammarRefused, also when no text at all matches.
    """
    limits = LLParserLimits(
        max_items_in_row=ROW_MAX_ITEMS,
        initial_lexer_fuel=INITIAL_LEXER_FUEL,
        step_lexer_fuel=STEP_LEXER_FUEL,
        step_max_items=STEP_MAX_ITEMS,
        max_lexer_states=MAX_LEXER_STATES,
        max_grammar_size=MAX_GRAMMAR_SYMBOLS,
        verbose_errors=False,
    )
    matcher = LLMatcher(vocabulary, grammar.source, log_level=0, limits=limits)
    if matcher.is_error():
        raise GrammarRefused(grammar, ADVICE.sub("", matcher.get_error()))
    matcher.compute_bitmask()  # of a cycle without content only this tells that nothing matches
    if matcher.is_error():
        raise GrammarRefused(grammar, f"nothing matches it, or too much at once ({matcher.get_error().split()[0]})")
    return matcher


def try_out(matcher: LLMatcher, grammar: Grammar, end_ids: Collection[int]) -> None:
    """Write the beginning of an answer: some grammars compile, and are too much only where they unfold.

    Raises GrammarRefused.
    """
    trial = matcher.deep_copy()
    for _ in range(TRIED_TOKENS):
        ids_bits = int.from_bytes(trial.compute_bitmask(), "little")
        for end_id in end_ids:
            ids_bits &= ~(1 << end_id)
        if trial.is_error():
            raise GrammarRefused(grammar, f"too much may follow at once: {ADVICE.sub('', trial.get_error())}")
        if not ids_bits:
            return
        trial.consume_token((ids_bits & -ids_bits).bit_length() - 1)
