"""The fields of a body that change what may be drawn: penalties, biases, allowed ids, bad words. Pure."""

from typing import Any, Final

from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import SamplingParams, TokenBias
from libs.contracts.token_rules import (
    MAX_ALLOWED_IDS,
    MAX_BAD_WORDS,
    MAX_BIASES,
    MAX_PENALTY,
    MAX_REPETITION,
    MIN_REPETITION,
    check_token_rules,
)
from services.gateway.bounds import number
from services.gateway.schemas import Body

MAX_BAD_WORD_CHARS: Final = 200
NOT_WITH_BEAMS: Final = ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias")


def logit_params(body: Body, vocab_size: int) -> dict[str, Any]:
    """Fields of SamplingParams. Raises InvalidRequest."""
    changes: dict[str, Any] = {
        "repetition_penalty": number(
            "repetition_penalty", body.repetition_penalty, 1.0, MIN_REPETITION, MAX_REPETITION
        ),
        "presence_penalty": number("presence_penalty", body.presence_penalty, 0.0, -MAX_PENALTY, MAX_PENALTY),
        "frequency_penalty": number("frequency_penalty", body.frequency_penalty, 0.0, -MAX_PENALTY, MAX_PENALTY),
        "logit_bias": _biases(body.logit_bias or {}),
        "allowed_token_ids": _allowed(body.allowed_token_ids),
    }
    if body.use_beam_search:
        for name in NOT_WITH_BEAMS:
            if changes[name] != getattr(SamplingParams(), name):
                raise InvalidRequest(f"{name} is not supported with use_beam_search", param=name)
    check_token_rules(SamplingParams(**changes), vocab_size)
    return changes


def bad_words(words: list[str] | None) -> tuple[str, ...]:
    """Raises InvalidRequest."""
    words = words or []
    if len(words) > MAX_BAD_WORDS:
        raise InvalidRequest(f"at most {MAX_BAD_WORDS} bad_words are allowed", param="bad_words")
    if not all(0 < len(word) <= MAX_BAD_WORD_CHARS and word.strip() for word in words):
        raise InvalidRequest(f"each of bad_words needs 1 to {MAX_BAD_WORD_CHARS} characters", param="bad_words")
    return tuple(dict.fromkeys(words))


def _allowed(ids: list[int] | None) -> tuple[int, ...]:
    if ids is None:
        return ()
    if not 0 < len(ids) <= MAX_ALLOWED_IDS:
        raise InvalidRequest(f"allowed_token_ids needs 1 to {MAX_ALLOWED_IDS} ids", param="allowed_token_ids")
    return tuple(dict.fromkeys(ids))


def _biases(biases: dict[str, float]) -> tuple[TokenBias, ...]:
    if len(biases) > MAX_BIASES:
        raise InvalidRequest(f"logit_bias may name at most {MAX_BIASES} ids", param="logit_bias")
    return tuple(TokenBias(_id(name), bias) for name, bias in biases.items())


def _id(name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        raise InvalidRequest(f"logit_bias names {name[:24]!r}, which is no token id", param="logit_bias")
    return int(name)
