"""Bounds, defaults and meanings of request fields as JSON schema keywords, beside the constants that keep them. Pure.

What a body's types cannot say stands here; a test sends each bound, and what is just beyond it, through validate.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from libs.contracts.tenancy import FIRST_PRIORITY, LAST_PRIORITY
from libs.contracts.token_rules import (
    MAX_ALLOWED_IDS,
    MAX_BAD_WORDS,
    MAX_BIAS,
    MAX_BIASES,
    MAX_PENALTY,
    MAX_REPETITION,
    MAX_STOP_TOKEN_IDS,
    MIN_REPETITION,
)
from services.gateway.limits import Limits
from services.gateway.logit_fields import MAX_BAD_WORD_CHARS
from services.gateway.logprob_fields import MAX_LOGPROBS
from services.gateway.prompt_fields import MAX_MESSAGES
from services.gateway.validate import (
    CLIENT_ID,
    DEFAULT_COMPLETION_TOKENS,
    MAX_CLIENT_ID_CHARS,
    MAX_COUNT,
    MAX_LENGTH_PENALTY,
    MAX_SALT_CHARS,
    MAX_SEED,
    MAX_STOP_CHARS,
    MAX_STOPS,
    MAX_TIMEOUT_S,
    MIN_SEED,
)

Keywords = Mapping[str, Any]


def request_fields(models: Sequence[Limits], *, is_chat: bool) -> dict[str, Keywords]:
    """Keywords by field, of one of the two bodies; of several models the widest."""
    vocab_size = max(limits.vocab_size for limits in models)
    max_model_len = max(limits.max_model_len for limits in models)
    ids = {"items": {"type": "integer", "minimum": 0, "maximum": vocab_size - 1}}
    choices = {"minimum": 1, "maximum": max(limits.max_choices for limits in models)}
    tokens: dict[str, Any] = {"minimum": 1, "maximum": MAX_COUNT, "description": "At most so many are generated."}
    return {
        **SAMPLING,
        **SWITCHES,
        **FORM,
        **LOGITS,
        **TOLD,
        "model": {"description": "The name of a served model, or an alias of one."},
        "messages": {"maxItems": MAX_MESSAGES, "minItems": 1, "description": "What was said, for the chat template."},
        "prompt": {"description": "Text, a list of token ids, or a list of one of these."},
        "max_tokens": tokens if is_chat else {**tokens, "default": DEFAULT_COMPLETION_TOKENS},
        "max_completion_tokens": {**tokens, "description": "Goes before max_tokens."},
        "min_tokens": {"minimum": 0, "maximum": max_model_len, "default": 0, "description": "No end before."},
        "n": {**choices, "default": 1, "description": "Choices from one prompt."},
        "beam_width": {**choices, "description": "Hypotheses that live on after each step; n unless given."},
        "best_of": {"description": "Not supported, unless it is n."},
        "allowed_token_ids": {**ids, "minItems": 1, "maxItems": MAX_ALLOWED_IDS, "description": "No others are drawn."},
        "truncate_prompt_tokens": {
            "minimum": -1,
            "maximum": max_model_len,
            "description": "Its last ones.",
        },
        "logprobs": {"description": "Tell them."} if is_chat else {**TOPS, "description": "So many others."},
        "stop_token_ids": {**ids, "maxItems": MAX_STOP_TOKEN_IDS, "description": "Tokens that end the answer, unseen."},
    }


TOPS: Final[Keywords] = MappingProxyType({"minimum": 0, "maximum": MAX_LOGPROBS})
PENALTY: Final[Keywords] = MappingProxyType({"minimum": -MAX_PENALTY, "maximum": MAX_PENALTY, "default": 0})
SALT: Final[Keywords] = MappingProxyType({"minLength": 1, "maxLength": MAX_SALT_CHARS})
STOP: Final[Keywords] = MappingProxyType({"minLength": 1, "maxLength": MAX_STOP_CHARS})
SAMPLING: Final[Mapping[str, Keywords]] = MappingProxyType(
    {
        "temperature": {"minimum": 0, "maximum": 2, "default": 1, "description": "0 takes the most likely token."},
        "top_p": {"exclusiveMinimum": 0, "maximum": 1, "default": 1, "description": "Draw from so much probability."},
        "top_k": {
            "minimum": -1,
            "maximum": MAX_COUNT,
            "default": 0,
            "description": "Draw from so many; 0: all.",
        },
        "min_p": {"minimum": 0, "maximum": 1, "default": 0, "description": "Draw from what is at least so likely."},
        "seed": {"minimum": MIN_SEED, "maximum": MAX_SEED, "description": "The same seed draws the same tokens."},
        "stop": {
            **STOP,
            "items": {"type": "string", **STOP},
            "maxItems": MAX_STOPS,
            "description": "End the answer.",
        },
        "length_penalty": {
            "minimum": -MAX_LENGTH_PENALTY,
            "maximum": MAX_LENGTH_PENALTY,
            "default": 1,
            "description": "Of beam search: above 0 favours long answers.",
        },
        "priority": {"minimum": FIRST_PRIORITY, "maximum": LAST_PRIORITY, "description": "The lower, the earlier."},
        "timeout": {"exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S, "description": "Seconds until the last token."},
    }
)
LOGITS: Final[Mapping[str, Keywords]] = MappingProxyType(
    {
        "presence_penalty": {**PENALTY, "description": "Subtracted from what the answer has."},
        "frequency_penalty": {**PENALTY, "description": "Subtracted as often as the answer has it."},
        "repetition_penalty": {
            "minimum": MIN_REPETITION,
            "maximum": MAX_REPETITION,
            "default": 1,
            "description": "Divides what prompt or answer have.",
        },
        "logit_bias": {
            "additionalProperties": {"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS},
            "propertyNames": {"pattern": "^[0-9]{1,10}$"},
            "maxProperties": MAX_BIASES,
            "description": "Added to the logits of these ids.",
        },
        "bad_words": {
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_BAD_WORD_CHARS},
            "maxItems": MAX_BAD_WORDS,
            "description": "Never in the answer.",
        },
    }
)
TOLD: Final[Mapping[str, Keywords]] = MappingProxyType(
    {
        "top_logprobs": {**TOPS, "description": "Alternatives of each position; needs logprobs."},
        "prompt_logprobs": {**TOPS, "description": "Of each position of the prompt, its token and so many others."},
        "echo": {"default": False, "description": "The answer begins with the prompt."},
        "include_stop_str_in_output": {"default": False, "description": "The stop string that was met is shown."},
        "skip_special_tokens": {"default": True, "description": "Control tokens are not shown."},
        "spaces_between_special_tokens": {"default": True, "description": "There are none either way."},
        "return_tokens_as_token_ids": {"default": False, "description": "Log-probabilities name tokens by their ids."},
        "cache_salt": {**SALT, "description": "Cached prefixes are shared with the same salt alone."},
        "prompt_cache_key": {"maxLength": MAX_SALT_CHARS, "description": "As cache_salt, where there is none."},
        "request_id": {
            "pattern": f"^{CLIENT_ID.pattern}$",
            "maxLength": MAX_CLIENT_ID_CHARS,
            "description": "What the client calls the request; told back to it.",
        },
        "add_generation_prompt": {"default": True, "description": "Whether the template opens the answer's turn."},
        "add_special_tokens": {"default": True, "description": "Whether the tokenizer's own stand around a text."},
        "continue_final_message": {"default": False, "description": "The answer goes on with the last message."},
        "chat_template_kwargs": {"description": "Variables of the chat template."},
    }
)
FORM: Final[Mapping[str, Keywords]] = MappingProxyType(
    {
        "response_format": {"description": "What the text of the answer must be: text, json_object or json_schema."},
        "structured_outputs": {"description": "Likewise, by one of json, regex, choice, grammar and json_object."},
        "guided_json": {"description": "As structured_outputs.json."},
        "guided_regex": {"description": "As structured_outputs.regex."},
        "guided_choice": {"description": "As structured_outputs.choice."},
        "guided_grammar": {"description": "As structured_outputs.grammar."},
        "guided_whitespace_pattern": {"description": "As structured_outputs.whitespace_pattern."},
    }
)
SWITCHES: Final[Mapping[str, Keywords]] = MappingProxyType(
    {
        "ignore_eos": {"default": False, "description": "Go on after the model's own end."},
        "use_beam_search": {"default": False, "description": "The n best hypotheses; not with stream or stop."},
        "early_stopping": {"default": False, "description": "Of beam search: over with the first finished ones."},
        "stream": {"default": False, "description": "Server-sent events instead of one object."},
        "stream_options": {"description": "Only with stream."},
        "return_token_ids": {"default": False, "description": "Adds token_ids and prompt_token_ids."},
    }
)
