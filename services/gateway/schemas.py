"""Bodies of the two endpoints as clients send them: types only, no bounds. Unknown fields are ignored.

Fields that are known but not supported are kept as raw JSON, so that any value decodes and none is built.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from libs.contracts.errors import InvalidRequest
from services.gateway.json_depth import MAX_DEPTH, is_too_deep

ABSENT = Raw(b"null")
LONGEST_NEUTRAL_BYTES = 64
_PATH = re.compile(r"`\$\.(\w+)")
_MISSING = re.compile(r"missing required field `(\w+)`")

B = TypeVar("B", bound=Struct)


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchema(Struct):
    name: str
    schema: dict[str, Raw]
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(Struct):
    type: str
    json_schema: JsonSchema | None = None


class StructuredOutputs(Struct):
    json: dict[str, Raw] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Raw = ABSENT
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    disable_fallback: bool | None = None


class Part(Struct):
    type: str
    text: str | None = None


class Message(Struct):
    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Raw = ABSENT


class Body(Struct, kw_only=True):
    """What both endpoints take."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    n: int | None = None
    use_beam_search: bool | None = None
    beam_width: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    priority: int | None = None
    timeout: float | None = None
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: int | None = None
    echo: bool | None = None
    truncate_prompt_tokens: int | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None  # texts are joined byte by byte: there are none either way
    return_tokens_as_token_ids: bool | None = None
    cache_salt: str | None = None
    prompt_cache_key: str | None = None
    request_id: str | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Raw] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None

    guided_decoding_backend: Raw = ABSENT
    kv_transfer_params: Raw = ABSENT
    logits_processors: Raw = ABSENT
    lora: Raw = ABSENT
    lora_request: Raw = ABSENT
    prompt_embeds: Raw = ABSENT
    suffix: Raw = ABSENT
    verbosity: Raw = ABSENT


class ChatBody(Body, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Raw] | None = None

    add_special_tokens: Raw = ABSENT
    audio: Raw = ABSENT
    chat_template: Raw = ABSENT
    documents: Raw = ABSENT
    function_call: Raw = ABSENT
    functions: Raw = ABSENT
    mm_processor_kwargs: Raw = ABSENT
    modalities: Raw = ABSENT
    prediction: Raw = ABSENT
    reasoning_effort: Raw = ABSENT
    tool_choice: Raw = ABSENT
    tools: Raw = ABSENT
    web_search_options: Raw = ABSENT


class CompletionBody(Body, kw_only=True):
    prompt: str | list[int | str | list[int]]
    logprobs: int | None = None
    add_special_tokens: bool | None = None

    max_completion_tokens: Raw = ABSENT


# Fields of OpenAI's API that change nothing here.
IGNORED: Final = frozenset(
    {"metadata", "parallel_tool_calls", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user"}
)

# Values of a field, besides null, that ask for nothing this server would not do anyway.
NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "logits_processors": ([],),
        "suffix": ("",),
    }
)
NEUTRAL_CHAT: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        **NEUTRAL,
        "add_special_tokens": (False,),
        "documents": ([],),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "modalities": (["text"],),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
    }
)
NEUTRAL_COMPLETION: Final[Mapping[str, tuple[Any, ...]]] = NEUTRAL


@cache
def raw_fields(kind: type[Body]) -> tuple[str, ...]:
    """Names of the known but unsupported fields of a body, in the order of their declaration."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.type is Raw)


def unsupported(body: Body, neutral: Mapping[str, tuple[Any, ...]]) -> Iterator[str]:
    """Names of known but unsupported fields whose value asks for something."""
    for name in raw_fields(type(body)):
        raw = getattr(body, name)
        if raw is not ABSENT and not is_neutral(raw, neutral.get(name, ())):
            yield name


def unknown(kind: type[Body], payload: bytes) -> str:
    """The first field of a body, which has been decoded as this kind, that is no field of the API; else ""."""
    known = {field.name for field in msgspec.structs.fields(kind)} | IGNORED
    return next((name for name in msgspec.json.decode(payload, type=dict[str, Raw]) if name not in known), "")


def is_neutral(raw: Raw, values: tuple[Any, ...]) -> bool:
    """Whether raw JSON is null or one of `values`; true is not 1 here, but 1.0 is."""
    text = bytes(raw)
    if len(text) > LONGEST_NEUTRAL_BYTES:
        return False
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return value is None or any(
        value == candidate and isinstance(value, bool) == isinstance(candidate, bool) for candidate in values
    )


def decode(kind: type[B], payload: bytes) -> B:
    """The body in `payload`. Raises InvalidRequest that names the field at fault, when one is."""
    if is_too_deep(payload):
        raise InvalidRequest(f"the body is nested more than {MAX_DEPTH} levels deep")
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error), param=_field(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply") from error


def _field(message: str) -> str | None:
    """The top-level field that a message of msgspec is about."""
    found = _PATH.search(message) or _MISSING.search(message)
    return found[1] if found else None
