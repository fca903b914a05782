"""Which log-probabilities a body asks for: of the answer's tokens, of the prompt's, and how many beside each. Pure."""

from dataclasses import dataclass
from typing import Any, Final

from libs.contracts.errors import InvalidRequest
from services.gateway.bounds import integer
from services.gateway.schemas import Body, ChatBody, CompletionBody

MAX_LOGPROBS: Final = 20
NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Asked:
    """−1: none; 0: the token's own; above: those of so many likeliest ones as well."""

    answer: int = NONE
    prompt: int = NONE  # by `prompt_logprobs`
    echo: int = NONE  # of an echoed prompt

    @property
    def of_prompt(self) -> int:
        return max(self.prompt, self.echo)

    @property
    def params(self) -> dict[str, Any]:
        """Fields of SamplingParams."""
        return {"logprobs": self.answer, "prompt_logprobs": self.of_prompt}


NOTHING: Final = Asked()


def asked_logprobs(body: Body) -> Asked:
    """Raises InvalidRequest."""
    answer = _chat(body) if isinstance(body, ChatBody) else _completion(body)
    prompt = integer("prompt_logprobs", body.prompt_logprobs, NONE, 0, MAX_LOGPROBS)
    if body.prompt_logprobs is None:
        prompt = NONE
    elif body.stream:
        raise InvalidRequest("prompt_logprobs is not supported with stream", param="prompt_logprobs")
    is_echoed = bool(body.echo) and isinstance(body, CompletionBody)
    asked = Asked(answer, prompt, answer if is_echoed else NONE)
    if body.use_beam_search:
        for name, value in (("logprobs", asked.answer), ("prompt_logprobs", asked.of_prompt + 1)):
            if value > 0:
                raise InvalidRequest(f"{name} with this value is not supported with use_beam_search", param=name)
    return asked


def _chat(body: ChatBody) -> int:
    if not body.logprobs:
        if body.top_logprobs:
            raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
        return NONE
    return integer("top_logprobs", body.top_logprobs, 0, 0, MAX_LOGPROBS)


def _completion(body: Body) -> int:
    asked = body.logprobs if isinstance(body, CompletionBody) else None
    return NONE if asked is None else integer("logprobs", asked, 0, 0, MAX_LOGPROBS)
