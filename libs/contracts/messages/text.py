"""What a gateway asks of the tokenizers beside requests: which ids a prompt would be."""

from dataclasses import dataclass

from libs.contracts.errors import WireError
from libs.contracts.messages.requests import Prompt


@dataclass(frozen=True, slots=True)
class TokenizeQuery:
    """gateway → one tokenizer over `tokenize.<model>`. Changes nothing anywhere: may be repeated at will."""

    model: str
    prompt: Prompt
    add_special_tokens: bool  # around raw text; a chat's template writes its own


@dataclass(frozen=True, slots=True)
class TokenIds:
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NotTokenized:
    error: WireError


TokenizeReply = TokenIds | NotTokenized
