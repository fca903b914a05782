"""The gRPC door's messages. A field that may be left out is None then; names and bounds are those of the HTTP body."""

from dataclasses import dataclass

from libs.contracts.messages.requests import TokenBias


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class StructuredOutputs:
    """What the text of an answer must be: one of the first five."""

    json: str | None = None  # a schema
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None
    json_object: bool | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """One of several prompts: either of the two is set."""

    text: str | None = None
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Exactly one of prompt, prompt_ids, prompts and messages is set."""

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
    use_beam_search: bool | None = None
    beam_width: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[TokenBias, ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = None  # of each token: its own (0), and those of so many likeliest ones
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None  # around a raw prompt
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    cache_salt: str | None = None
    request_id: str | None = None  # comes back as metadata x-request-id
    structured_outputs: StructuredOutputs | None = None
    prompts: tuple[RawPrompt, ...] = ()  # each is the request alone; choices are numbered prompt by prompt
    chat_template_kwargs: str | None = None  # of messages: an object of JSON
    echo: bool | None = None  # the prompt before each choice's text
    prompt_logprobs: int | None = None  # of the prompt's tokens, as logprobs


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """Of one choice: all of it, or what is new."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str = ""  # "" while more is to come
    logprobs: tuple[float, ...] = ()  # of token_ids, where asked for
    top_ids: tuple[int, ...] = ()  # equally many for each of token_ids, the likeliest in its place
    top_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Of a prompt that is echoed, or whose log-probabilities are told: these are of all ids after the first."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    ranks: tuple[int, ...] = ()  # 1: the likeliest
    top_ids: tuple[int, ...] = ()  # equally many for each
    top_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenUsage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class GenerateResponse:
    request_id: str
    choices: tuple[GeneratedText, ...]
    usage: TokenUsage  # of all prompts
    prompts: tuple[PromptTokens, ...] = ()  # in the order of the request


@dataclass(frozen=True, slots=True)
class GenerateChunk:
    request_id: str
    delta: GeneratedText
    usage: TokenUsage  # so far
    prompt: PromptTokens | None = None  # with the first delta of the prompt's choices


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """Exactly one of prompt and messages is set."""

    model: str
    prompt: str | None = None
    messages: tuple[ChatMessage, ...] = ()
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None  # this and what follows is of messages
    continue_final_message: bool | None = None
    chat_template_kwargs: str | None = None  # an object of JSON


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
