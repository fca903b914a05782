"""How the tokens of a choice become text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    max_tokens: int
    min_tokens: int = 0
    stops: tuple[str, ...] = ()
    shows_stop: bool = False  # what ended it, a stop string or a stop token, is part of the text
    skips_special: bool = True
    is_noted: bool = False  # log-probabilities are wanted
    tells_ids: bool = False  # a token is told as it comes, though its text may come with a later one
    is_silent: bool = False  # the prompt is all that is wanted: the one token that is drawn is not told
