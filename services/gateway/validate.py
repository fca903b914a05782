"""Raw bodies to requests that keep every bound; what is wrong is an InvalidRequest that names its field.

Pure but for the seed: a request without one gets a random seed here, so that it can always be done again.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import Prompt, SamplingParams
from libs.contracts.tenancy import FIRST_PRIORITY, LAST_PRIORITY
from libs.contracts.token_rules import MAX_STOP_TOKEN_IDS
from services.gateway import schemas
from services.gateway.bounds import integer, number, text
from services.gateway.catalog import Catalog
from services.gateway.limits import Limits, token_ids
from services.gateway.logit_fields import bad_words, logit_params
from services.gateway.logprob_fields import NOTHING, Asked, asked_logprobs
from services.gateway.prompt_fields import echoed_chat, prompts_of
from services.gateway.reading import Reading
from services.gateway.recommended import recommend
from services.gateway.schemas import Body, ChatBody, CompletionBody
from services.gateway.structured import grammar_of

MAX_STOPS = 16
MAX_STOP_CHARS = 1000
MAX_SALT_CHARS = 256
MAX_LENGTH_PENALTY = 10.0
SEARCH_FIELDS = MappingProxyType({"beam_width": None, "length_penalty": 1, "early_stopping": False})  # when neutral
MAX_COUNT = (1 << 31) - 1
MAX_TIMEOUT_S = 86_400.0
MIN_SEED, MAX_SEED = -(1 << 63), (1 << 64) - 1  # signed as OpenAI has it, or the same 64 bits unsigned
DEFAULT_COMPLETION_TOKENS = 16
# Below it the best token's lead is beyond what any draw could bridge, and dividing by it would leave float32.
GREEDY_BELOW_TEMPERATURE = 1e-5
DRAWN_SEED_BITS = 63
MAX_CLIENT_ID_CHARS = 128
CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]+")


class Kind(Enum):
    CHAT = "chat"
    COMPLETION = "text_completion"


@dataclass(frozen=True, slots=True)
class ValidRequest:
    kind: Kind
    model: str
    prompt: Prompt
    params: SamplingParams
    reading: Reading
    choices: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    priority: int = 0
    timeout_s: float = 0.0  # 0: as long as the server lets it
    logprobs: Asked = NOTHING
    echo: bool = False
    begins_with: str = ""  # of an echoed chat: what the client wrote of the answer itself
    names_by_id: bool = False  # tokens are called by their ids
    bad_words: tuple[str, ...] = ()
    cache_salt: str = ""
    client_id: str = ""  # what the client calls this request
    more: tuple["ValidRequest", ...] = ()  # of its other prompts

    @property
    def wants_prompt_ids(self) -> bool:
        return self.return_token_ids or self.echo or self.logprobs.of_prompt >= 0


def validate(
    kind: Kind,
    payload: bytes,
    catalog: Catalog,
    *,
    first_priority: int = FIRST_PRIORITY,
    draw_seed: Callable[[], int] = lambda: secrets.randbits(DRAWN_SEED_BITS),
) -> ValidRequest:
    """The request in a JSON body. Raises InvalidRequest, ModelNotFound or ContextTooLong.

    `first_priority` is the lowest, so the earliest, that its sender may ask for.
    """
    is_chat = kind is Kind.CHAT
    body = schemas.decode(ChatBody, payload) if is_chat else schemas.decode(CompletionBody, payload)
    limits = catalog.of(body.model)
    recommend(body, limits.sampling)
    if limits.is_strict and (name := schemas.unknown(type(body), payload)):
        raise InvalidRequest(f"{name[:100]} is no field of this API", param=name[:100])
    for name in schemas.unsupported(body, schemas.NEUTRAL_CHAT if is_chat else schemas.NEUTRAL_COMPLETION):
        raise InvalidRequest(f"{name} with this value is not supported", param=name)
    stream = bool(body.stream)
    include_usage, continuous_usage = _stream_options(body, stream)
    choices = _choices(body, limits)
    prompts, logprobs = prompts_of(body, limits), asked_logprobs(body)
    params = replace(_params(body, limits, draw_seed), **_search(body, choices, limits), **logprobs.params)
    params = replace(params, grammar=grammar_of(body))
    first = ValidRequest(
        kind=kind,
        model=limits.model,
        prompt=prompts[0],
        params=params,
        reading=_reading(body, params),
        choices=choices,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        return_token_ids=bool(body.return_token_ids),
        priority=integer("priority", body.priority, max(0, first_priority), first_priority, LAST_PRIORITY),
        timeout_s=_timeout_s(body.timeout),
        logprobs=logprobs,
        echo=bool(body.echo),
        begins_with=echoed_chat(body) if body.echo and isinstance(body, ChatBody) else "",
        names_by_id=bool(body.return_tokens_as_token_ids),
        bad_words=bad_words(body.bad_words),
        cache_salt=_salt(body),
        client_id=client_id(body.request_id),
    )
    return replace(first, more=tuple(_other(first, body, prompt, draw_seed) for prompt in prompts[1:]))


def _other(first: ValidRequest, body: Body, prompt: Prompt, draw_seed: Callable[[], int]) -> ValidRequest:
    """The request of another prompt; with a seed of its own, unless the client gave one for all."""
    seed = draw_seed() if body.seed is None else first.params.seed
    return replace(first, prompt=prompt, params=replace(first.params, seed=seed))


def is_name(given: str) -> bool:
    """Whether a client may call its request so."""
    return len(given) <= MAX_CLIENT_ID_CHARS and CLIENT_ID.fullmatch(given) is not None


def client_id(given: str | None) -> str:
    """What a client calls its request: told back to it, and no key to anything here. Raises InvalidRequest."""
    if given and not is_name(given):
        raise InvalidRequest(
            f"request_id needs 1 to {MAX_CLIENT_ID_CHARS} letters, digits, '.', '_', ':' or '-'", param="request_id"
        )
    return text("request_id", given, MAX_CLIENT_ID_CHARS)


def _choices(body: Body, limits: Limits) -> int:
    choices = integer("n", body.n, 1, 1, limits.max_choices)
    if body.best_of not in (None, choices):
        raise InvalidRequest("best_of is not supported, unless it equals n", param="best_of")
    return choices


def _salt(body: Body) -> str:
    """Requests share cached prefixes with those of the same salt alone."""
    salt = text("cache_salt", body.cache_salt, MAX_SALT_CHARS)
    return salt or text("prompt_cache_key", body.prompt_cache_key, MAX_SALT_CHARS)


def _reading(body: Body, params: SamplingParams) -> Reading:
    return Reading(
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        stops=_stops(body.stop),
        shows_stop=bool(body.include_stop_str_in_output),
        skips_special=body.skip_special_tokens is not False,
        tells_ids=bool(body.return_token_ids),
        is_noted=params.logprobs >= 0 or params.beam_width > 0,
        is_silent=body.max_tokens == 0 and isinstance(body, CompletionBody),
    )


def _stream_options(body: Body, stream: bool) -> tuple[bool, bool]:
    options = body.stream_options
    if options is None:
        return False, False
    if not stream:
        raise InvalidRequest("stream_options needs stream: true", param="stream_options")
    include = bool(options.include_usage)
    return include, include and bool(options.continuous_usage_stats)


def _params(body: Body, limits: Limits, draw_seed: Callable[[], int]) -> SamplingParams:
    max_tokens = _max_tokens(body, limits)
    temperature = number("temperature", body.temperature, 1.0, 0.0, 2.0)
    top_k = integer("top_k", body.top_k, 0, -1, MAX_COUNT)
    top_p = number("top_p", body.top_p, 1.0, 0.0, 1.0)
    if top_p == 0:
        raise InvalidRequest("top_p must be above 0", param="top_p")
    seed = integer("seed", body.seed, None, MIN_SEED, MAX_SEED)
    min_tokens = integer("min_tokens", body.min_tokens, 0, 0, MAX_COUNT)
    if min_tokens > max_tokens:
        raise InvalidRequest(f"min_tokens must be at most max_tokens, {max_tokens}", param="min_tokens")
    stop_token_ids = body.stop_token_ids or []
    if len(stop_token_ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequest(f"at most {MAX_STOP_TOKEN_IDS} stop_token_ids are allowed", param="stop_token_ids")
    return SamplingParams(
        temperature=temperature if temperature >= GREEDY_BELOW_TEMPERATURE else 0.0,
        top_k=top_k if 0 < top_k < limits.vocab_size else 0,
        top_p=top_p,
        min_p=number("min_p", body.min_p, 0.0, 0.0, 1.0),
        seed=draw_seed() if body.seed is None else seed % (MAX_SEED + 1),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=bool(body.ignore_eos),
        stop_token_ids=token_ids("stop_token_ids", stop_token_ids, limits),
        **logit_params(body, limits.vocab_size),
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
        "beam_width": integer("beam_width", body.beam_width, choices, choices, limits.max_choices),
        "length_penalty": number("length_penalty", body.length_penalty, 1.0, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY),
        "early_stopping": bool(body.early_stopping),
    }


def _max_tokens(body: Body, limits: Limits) -> int:
    """Never above the context; the tokenizer lowers it to what the prompt leaves."""
    name, value, default = "max_tokens", body.max_tokens, DEFAULT_COMPLETION_TOKENS
    if isinstance(body, ChatBody):
        default = limits.max_model_len
        if body.max_completion_tokens is not None:
            name, value = "max_completion_tokens", body.max_completion_tokens
    if value == 0 and body.echo and isinstance(body, CompletionBody):
        return 1  # a step ends with a draw; this one is not told
    return min(integer(name, value, default, 1, MAX_COUNT), limits.max_model_len)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"at most {MAX_STOPS} stop strings are allowed", param="stop")
    if not all(0 < len(text) <= MAX_STOP_CHARS for text in stops):
        raise InvalidRequest(f"each stop string needs 1 to {MAX_STOP_CHARS} characters", param="stop")
    return tuple(dict.fromkeys(stops))


def _timeout_s(timeout: float | None) -> float:
    if timeout == 0:
        raise InvalidRequest("timeout must be above 0", param="timeout")
    return number("timeout", timeout, 0.0, 0.0, MAX_TIMEOUT_S)
