"""Raw bodies to requests that keep every bound; what is wrong is an InvalidRequest that names its field.

Pure but for the seed: a request without one gets a random seed here, so that it can always be done again.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from libs.contracts.errors import ContextTooLong, InvalidRequest, ModelNotFound
from libs.contracts.messages import Prompt, SamplingParams
from libs.contracts.tenancy import FIRST_PRIORITY, LAST_PRIORITY
from libs.text.chat_messages import plain_messages
from services.gateway import schemas
from services.gateway.recommended import recommend
from services.gateway.schemas import Body, ChatBody, CompletionBody
from services.gateway.structured import grammar_of

MAX_MESSAGES = 4096
MAX_STOPS = 16
MAX_STOP_CHARS = 1000
MAX_STOP_TOKEN_IDS = 128
MAX_CHOICES = 128
MAX_LENGTH_PENALTY = 10.0
SEARCH_FIELDS = MappingProxyType({"beam_width": None, "length_penalty": 1, "early_stopping": False})  # when neutral
MAX_COUNT = (1 << 31) - 1
MAX_TIMEOUT_S = 86_400.0
MIN_SEED, MAX_SEED = -(1 << 63), (1 << 64) - 1  # signed as OpenAI has it, or the same 64 bits unsigned
DEFAULT_COMPLETION_TOKENS = 16
# Below it the best token's lead is beyond what any draw could bridge, and dividing by it would leave float32.
GREEDY_BELOW_TEMPERATURE = 1e-5
DRAWN_SEED_BITS = 63


class Kind(Enum):
    CHAT = "chat"
    COMPLETION = "text_completion"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the served model allows."""

    model: str
    max_model_len: int
    vocab_size: int
    max_choices: int = MAX_CHOICES
    sampling: Mapping[str, float] = field(default_factory=dict)  # what its makers recommend, by the names of fields

    def of(self, name: str) -> "Limits":
        """These, for the one model that they are of. Raises ModelNotFound."""
        if name != self.model:
            raise ModelNotFound(f"the model {name[:100]!r} does not exist", param="model")
        return self


class Lookup(Protocol):
    """Finds what the model of a name allows."""

    def of(self, name: str) -> Limits:
        """Raises ModelNotFound."""


@dataclass(frozen=True, slots=True)
class ValidRequest:
    kind: Kind
    model: str
    prompt: Prompt
    params: SamplingParams
    stops: tuple[str, ...]
    choices: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    priority: int = 0
    timeout_s: float = 0.0  # 0: as long as the server lets it


def validate(
    kind: Kind,
    payload: bytes,
    models: Lookup,
    *,
    first_priority: int = FIRST_PRIORITY,
    draw_seed: Callable[[], int] = lambda: secrets.randbits(DRAWN_SEED_BITS),
) -> ValidRequest:
    """The request in a JSON body. Raises InvalidRequest, ModelNotFound or ContextTooLong.

    `first_priority` is the lowest, so the earliest, that its sender may ask for.
    """
    body: ChatBody | CompletionBody
    if kind is Kind.CHAT:
        body = schemas.decode(ChatBody, payload)
        neutral = schemas.NEUTRAL_CHAT
    else:
        body = schemas.decode(CompletionBody, payload)
        neutral = schemas.NEUTRAL_COMPLETION
    limits = models.of(body.model)
    recommend(body, limits.sampling)
    for name in schemas.unsupported(body, neutral):
        raise InvalidRequest(f"{name} with this value is not supported", param=name)
    stream = bool(body.stream)
    include_usage, continuous_usage = _stream_options(body, stream)
    choices = _integer("n", body.n, 1, 1, limits.max_choices)
    return ValidRequest(
        kind=kind,
        model=limits.model,
        prompt=chat_prompt(body.messages) if isinstance(body, ChatBody) else _completion_prompt(body, limits),
        params=replace(_params(body, limits, draw_seed), grammar=grammar_of(body), **_search(body, choices, limits)),
        stops=_stops(body.stop),
        choices=choices,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        return_token_ids=bool(body.return_token_ids),
        priority=_integer("priority", body.priority, max(0, first_priority), first_priority, LAST_PRIORITY),
        timeout_s=_timeout_s(body.timeout),
    )


def _stream_options(body: Body, stream: bool) -> tuple[bool, bool]:
    options = body.stream_options
    if options is None:
        return False, False
    if not stream:
        raise InvalidRequest("stream_options needs stream: true", param="stream_options")
    include = bool(options.include_usage)
    return include, include and bool(options.continuous_usage_stats)


def chat_prompt(chat: Sequence[schemas.Message]) -> Prompt:
    """Raises InvalidRequest."""
    if len(chat) > MAX_MESSAGES:
        raise InvalidRequest(f"at most {MAX_MESSAGES} messages are allowed", param="messages")
    for index, message in enumerate(chat):
        if not schemas.is_neutral(message.tool_calls, ([],)):
            raise InvalidRequest(f"messages[{index}].tool_calls is not supported", param="messages")
    messages = plain_messages([_message(message) for message in chat])
    return Prompt(messages_json=msgspec.json.encode(messages), kind="chat")


def _message(message: schemas.Message) -> dict[str, object]:
    content: object = message.content
    if isinstance(message.content, list):
        content = [{"type": part.type, "text": part.text} for part in message.content]
    fields = {"role": message.role, "content": content, "name": message.name, "tool_call_id": message.tool_call_id}
    return {name: value for name, value in fields.items() if value is not None}


def _completion_prompt(body: CompletionBody, limits: Limits) -> Prompt:
    prompt = body.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            raise InvalidRequest("only one prompt a request is supported", param="prompt")
        prompt = prompt[0]  # type: ignore[assignment]  # a list of one string or of one list of ids
    if not prompt:
        raise InvalidRequest("prompt is empty", param="prompt")
    if isinstance(prompt, str):
        return Prompt(text=prompt, kind="text")
    if len(prompt) >= limits.max_model_len:
        raise ContextTooLong(
            f"the prompt has {len(prompt)} tokens, and the context of {limits.max_model_len} tokens"
            " must hold it and at least one more",
            param="prompt",
        )
    return Prompt(ids=token_ids("prompt", prompt, limits), kind="ids")


def token_ids(name: str, ids: Sequence[object], limits: Limits) -> tuple[int, ...]:
    """Raises InvalidRequest for what is not in the vocabulary."""
    checked = []
    for index, token_id in enumerate(ids):
        if not isinstance(token_id, int) or not 0 <= token_id < limits.vocab_size:
            shown = str(token_id)[:24] if isinstance(token_id, int) else type(token_id).__name__
            raise InvalidRequest(
                f"{name}[{index}] is {shown}, not a token id from 0 to {limits.vocab_size - 1}", param=name
            )
        checked.append(token_id)
    return tuple(checked)


def _params(body: Body, limits: Limits, draw_seed: Callable[[], int]) -> SamplingParams:
    max_tokens = _max_tokens(body, limits)
    temperature = _number("temperature", body.temperature, 1.0, 0.0, 2.0)
    top_k = _integer("top_k", body.top_k, 0, -1, MAX_COUNT)
    top_p = _number("top_p", body.top_p, 1.0, 0.0, 1.0)
    if top_p == 0:
        raise InvalidRequest("top_p must be above 0", param="top_p")
    seed = _integer("seed", body.seed, None, MIN_SEED, MAX_SEED)
    min_tokens = _integer("min_tokens", body.min_tokens, 0, 0, MAX_COUNT)
    if min_tokens > max_tokens:
        raise InvalidRequest(f"min_tokens must be at most max_tokens, {max_tokens}", param="min_tokens")
    stop_token_ids = body.stop_token_ids or []
    if len(stop_token_ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequest(f"at most {MAX_STOP_TOKEN_IDS} stop_token_ids are allowed", param="stop_token_ids")
    return SamplingParams(
        temperature=temperature if temperature >= GREEDY_BELOW_TEMPERATURE else 0.0,
        top_k=top_k if 0 < top_k < limits.vocab_size else 0,
        top_p=top_p,
        min_p=_number("min_p", body.min_p, 0.0, 0.0, 1.0),
        seed=draw_seed() if body.seed is None else seed % (MAX_SEED + 1),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=bool(body.ignore_eos),
        stop_token_ids=token_ids("stop_token_ids", stop_token_ids, limits),
    )


def _search(body: Body, choices: int, limits: Limits) -> dict[str, Any]:
    """The parameters of a beam search. Its answers are known only when it is over, and their text is not cut."""
    if not body.use_beam_search:
        for name, neutral in SEARCH_FIELDS.items():
            if getattr(body, name) not in (None, neutral):
                raise InvalidRequest(f"{name} needs use_beam_search: true", param=name)
        return {}
    for name in ("stream", "stop"):
        if getattr(body, name):
            raise InvalidRequest(f"{name} is not supported with use_beam_search", param=name)
    return {
        "beam_width": _integer("beam_width", body.beam_width, choices, choices, limits.max_choices),
        "length_penalty": _number("length_penalty", body.length_penalty, 1.0, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY),
        "early_stopping": bool(body.early_stopping),
    }


def _max_tokens(body: Body, limits: Limits) -> int:
    """Never above the context; the tokenizer lowers it to what the prompt leaves."""
    name, value, default = "max_tokens", body.max_tokens, DEFAULT_COMPLETION_TOKENS
    if isinstance(body, ChatBody):
        default = limits.max_model_len
        if body.max_completion_tokens is not None:
            name, value = "max_completion_tokens", body.max_completion_tokens
    return min(_integer(name, value, default, 1, MAX_COUNT), limits.max_model_len)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"at most {MAX_STOPS} stop strings are allowed", param="stop")
    if not all(0 < len(text) <= MAX_STOP_CHARS for text in stops):
        raise InvalidRequest(f"each stop string needs 1 to {MAX_STOP_CHARS} characters", param="stop")
    return tuple(dict.fromkeys(stops))


def _number(name: str, value: float | None, default: float, low: float, high: float) -> float:
    if value is None:
        return default
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be between {low:g} and {high:g}", param=name)
    return value


def _timeout_s(timeout: float | None) -> float:
    if timeout == 0:
        raise InvalidRequest("timeout must be above 0", param="timeout")
    return _number("timeout", timeout, 0.0, 0.0, MAX_TIMEOUT_S)


def _integer(name: str, value: int | None, default: int | None, low: int, high: int) -> int:
    if value is None:
        return default or 0
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be between {low} and {high}", param=name)
    return value
