"""What the routes answer, as types: only for /openapi.json, and for tests that read real answers by them."""

from typing import Any, Literal

from msgspec import Struct, field

Reason = Literal["stop", "length"]


class Answer(Struct, kw_only=True, forbid_unknown_fields=True):
    """None has a field that is not here."""


class TokensDetails(Answer):
    cached_tokens: int


class UsageAnswer(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokensDetails


class ChatMessageAnswer(Answer):
    role: Literal["assistant"]
    content: str | None
    refusal: None


class ChatChoice(Answer):
    index: int
    message: ChatMessageAnswer
    logprobs: dict[str, Any] | None
    finish_reason: Reason
    token_ids: list[int] = field(default_factory=list)


class ChatCompletion(Answer):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageAnswer
    prompt_token_ids: list[int] = field(default_factory=list)


class TextChoice(Answer):
    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Reason
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)


class TextCompletion(Answer):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageAnswer


class ModelCard(Answer):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int


class ModelList(Answer):
    object: Literal["list"]
    data: list[ModelCard]


class Tokenized(Answer):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: None


class Detokenized(Answer):
    prompt: str


class TokenizerInfo(Answer):
    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    model_max_length: int
    vocab_size: int
    chat_template: str | None


class Version(Answer):
    version: str


class State(Answer):
    status: str


class ErrorBody(Answer):
    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(Answer):
    error: ErrorBody
