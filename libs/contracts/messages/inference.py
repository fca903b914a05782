"""The gRPC door's messages. A field that may be left out is None then; names and bounds are those of the HTTP body."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Exactly one of prompt, prompt_ids and messages is set."""

    model: str
    prompt: str | None = None
    prompt_ids: tuple[int, ...] = ()
    messages: tuple[ChatMessage, ...] = ()
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool | None = None
    priority: int | None = None
    n: int | None = None  # choices


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """Of one choice: all of it, or what is new."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str = ""  # "" while more is to come


@dataclass(frozen=True, slots=True)
class TokenUsage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class GenerateResponse:
    request_id: str
    choices: tuple[GeneratedText, ...]
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class GenerateChunk:
    request_id: str
    delta: GeneratedText
    usage: TokenUsage  # so far


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """Exactly one of prompt and messages is set."""

    model: str
    prompt: str | None = None
    messages: tuple[ChatMessage, ...] = ()
    add_special_tokens: bool | None = None


@dataclass(frozen=True, slots=True)
class TokenizeResponse:
    ids: tuple[int, ...]
    max_model_len: int


@dataclass(frozen=True, slots=True)
class ListModelsRequest:
    """Nothing to say."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    id: str
    max_model_len: int
    created_unix_s: int


@dataclass(frozen=True, slots=True)
class ListModelsResponse:
    models: tuple[ServedModel, ...]
