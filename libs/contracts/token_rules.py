"""The bounds of parameters that name token ids, for whoever takes a request in and whoever computes it."""

from collections.abc import Iterable, Iterator
from typing import Final

from libs.contracts.errors import InvalidRequest
from libs.contracts.messages.requests import SamplingParams

MAX_STOP_TOKEN_IDS: Final = 128
MAX_BIASES: Final = 1024
MAX_BIAS: Final = 100.0
MAX_ALLOWED_IDS: Final = 1024
MAX_BAD_WORDS: Final = 128  # as a client writes them; each has an entry with a space before it and one without
MAX_BAD_WORD_IDS: Final = 64
MIN_REPETITION: Final = 0.01
MAX_REPETITION: Final = 10.0
MAX_PENALTY: Final = 2.0


def check_token_rules(params: SamplingParams, vocab_size: int) -> None:
    """Raises InvalidRequest, `param` naming the field."""
    for name, ids, most in _id_lists(params):
        if len(ids) > most:
            raise InvalidRequest(f"{name} may name at most {most} ids", param=name)
        check_ids(name, ids, vocab_size)
    for bias in params.logit_bias:
        if not -MAX_BIAS <= bias.bias <= MAX_BIAS:
            raise InvalidRequest(f"a logit_bias must be between {-MAX_BIAS:g} and {MAX_BIAS:g}", param="logit_bias")
    if len({bias.token_id for bias in params.logit_bias}) < len(params.logit_bias):
        raise InvalidRequest("logit_bias names an id twice", param="logit_bias")
    if len(params.bad_words) > 2 * MAX_BAD_WORDS or not all(word.ids for word in params.bad_words):
        raise InvalidRequest(f"bad_words are at most {MAX_BAD_WORDS}, none empty", param="bad_words")
    for name, low, high in (
        ("repetition_penalty", MIN_REPETITION, MAX_REPETITION),
        ("presence_penalty", -MAX_PENALTY, MAX_PENALTY),
        ("frequency_penalty", -MAX_PENALTY, MAX_PENALTY),
    ):
        if not low <= getattr(params, name) <= high:
            raise InvalidRequest(f"{name} must be between {low:g} and {high:g}", param=name)


def are_sound(params: SamplingParams, vocab_size: int) -> bool:
    """Whether a model of this vocabulary can compute them, however long their lists are."""
    ids = [token_id for _, ids, _ in _id_lists(params) for token_id in ids]
    return max(ids, default=0) < vocab_size and all(w.ids for w in params.bad_words) and params.repetition_penalty > 0


def check_ids(name: str, ids: Iterable[int], vocab_size: int) -> None:
    """Raises InvalidRequest for an id outside the vocabulary."""
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(f"{name} names {token_id}, not a token id from 0 to {vocab_size - 1}", param=name)


def _id_lists(params: SamplingParams) -> Iterator[tuple[str, tuple[int, ...], int]]:
    yield "stop_token_ids", params.stop_token_ids, MAX_STOP_TOKEN_IDS
    yield "logit_bias", tuple(bias.token_id for bias in params.logit_bias), MAX_BIASES
    yield "allowed_token_ids", params.allowed_token_ids, MAX_ALLOWED_IDS
    for word in params.bad_words:
        yield "bad_words", word.ids, MAX_BAD_WORD_IDS
