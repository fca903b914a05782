"""A request's way in, and what its gateway is told; repeat key (request_id, epoch, kind)."""

from dataclasses import dataclass

from libs.contracts.errors import WireError

MAX_GRAMMAR_BYTES = 128 << 10  # of a source as a client sends it


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the text of an answer must be, from its first byte to its last."""

    kind: str  # "json_schema" | "regex" | "choice" | "grammar"; "llguidance" once a tokenizer has checked it
    source: str  # a schema in JSON; a pattern; a list of strings in JSON; a grammar in Lark or GBNF
    field: str  # of the request, for errors
    blanks: str = ""  # json_schema: a pattern of what may stand between two elements; empty: nothing


@dataclass(frozen=True, slots=True)
class TokenBias:
    """What is added to the logit of an id."""

    token_id: int
    bias: float


@dataclass(frozen=True, slots=True)
class BadWord:
    """Ids that must not follow each other in an answer."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptScores:
    """How likely ids of a prompt were, by the raw logits: those from index `first` on.

    Of each there are as many of the likeliest ids in its place as were asked for, best first, in one row in `top_ids`.
    """

    first: int
    logprobs: tuple[float, ...]
    ranks: tuple[int, ...]  # 1: the likeliest
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn and when a worker ends a sequence. Neutral values switch a filter off."""

    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0 is off
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0  # 0 … 2⁶⁴ − 1; the gateway draws one when the client gives none
    max_tokens: int = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int = -1  # −1 none, 0 the sampled token's, above 0 those of so many likeliest ones as well
    beam_width: int = 0  # above 0: nothing is drawn, the best of so many hypotheses are kept
    length_penalty: float = 1.0  # of finished hypotheses: score / tokens ^ length_penalty
    early_stopping: bool = False  # the search is over with the first beam_width finished hypotheses
    repetition_penalty: float = 1.0  # of every id of prompt and answer: a logit above 0 ÷ it, any other × it
    presence_penalty: float = 0.0  # taken from the logit of every id of the answer
    frequency_penalty: float = 0.0  # likewise, as often as the answer has it
    logit_bias: tuple[TokenBias, ...] = ()  # different ids
    allowed_token_ids: tuple[int, ...] = ()  # empty: all
    bad_words: tuple[BadWord, ...] = ()
    prompt_logprobs: int = -1  # of the prompt's ids, in the same way
    grammar: Grammar | None = None  # None: any text


@dataclass(frozen=True, slots=True)
class Prompt:
    """Exactly one of the three is set: chat messages as JSON, raw text, or ids."""

    messages_json: bytes = b""
    text: str = ""
    ids: tuple[int, ...] = ()
    kind: str = "text"  # "chat" | "text" | "ids"
    last_tokens: int = 0  # above 0: only so many of its last ids; −1: as many as the context holds; 0: all
    is_bare: bool = False  # text without the tokens that the model wants around it
    has_no_turn: bool = False  # chat without the opening of the assistant's turn at its end
    goes_on: bool = False  # chat that ends inside its last message, to be continued
    arguments_json: bytes = b""  # chat: more variables of the template, an object


@dataclass(frozen=True, slots=True)
class Request:
    """gateway → tokenizer over `requests.<model>`. Repeat key: (request_id, epoch, kind)."""

    request_id: str
    epoch: int
    gateway: str
    model: str
    tenant: str
    prompt: Prompt
    params: SamplingParams
    choices: int
    deadline_unix_ms: int
    echo_ids: bool  # Accepted carries the prompt ids back
    priority: int = 0  # the lower, the earlier
    is_timed: bool = False  # the client set the deadline: it counts when requests are put in order
    bad_words: tuple[str, ...] = ()  # the tokenizer makes ids of them
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class Sequence:
    """tokenizer → scheduler over `sequences.<model>.<cell>`. Repeat key: (request_id, epoch, kind)."""

    request_id: str
    epoch: int
    gateway: str
    model: str
    tenant: str
    ids: tuple[int, ...]
    block_hashes: tuple[bytes, ...]  # one per full block of the prompt
    params: SamplingParams
    choices: int
    deadline_unix_ms: int
    priority: int = 0  # as Request has both
    is_timed: bool = False
    adapter: str = ""  # prefixes are shared within tenant, adapter and cache salt
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    request_id: str
    epoch: int
    cell: str
    prompt_tokens: int
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    request_id: str
    epoch: int
    error: WireError


@dataclass(frozen=True, slots=True)
class ChoiceEpoch:
    """The attempt at one choice that counts from now on."""

    choice: int
    epoch: int
    deaths: int = 0  # of workers that were computing it; the gateway keeps both for the next term
    died_at: int = 0  # committing beyond this clears them


@dataclass(frozen=True, slots=True)
class EpochRaised:
    """scheduler → gateway: drop frames of lower epochs of these choices from now on. Answered by Logs."""

    request_id: str
    term: int
    cell: str
    choices: tuple[ChoiceEpoch, ...]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """scheduler → gateway, at the opening of a term: what do you hold of these requests? Answered by Logs."""

    request_ids: tuple[str, ...]
    term: int
    cell: str


@dataclass(frozen=True, slots=True)
class Finished:
    """scheduler → gateway after a StepResult with an end; reveals a lost last frame."""

    request_id: str
    epoch: int
    choice: int
    total: int  # generated tokens of the choice
    reason: str
    term: int
    cell: str


@dataclass(frozen=True, slots=True)
class Failed:
    """scheduler → gateway: the request ends with a typed error."""

    request_id: str
    epoch: int
    error: WireError
    term: int
    cell: str


@dataclass(frozen=True, slots=True)
class Known:
    """The gateway's answer: it still holds the request, or it is gone."""

    live: bool


@dataclass(frozen=True, slots=True)
class ChoiceLog:
    choice: int
    ids: tuple[int, ...]
    end: str  # "" while open
    epoch: int
    deaths: int = 0  # as EpochRaised told
    died_at: int = 0


@dataclass(frozen=True, slots=True)
class RequestLog:
    request_id: str
    live: bool
    choices: tuple[ChoiceLog, ...]


@dataclass(frozen=True, slots=True)
class Logs:
    requests: tuple[RequestLog, ...]


RepliesMessage = Accepted | Rejected | EpochRaised | LogQuery | Finished | Failed
