"""The scores of one request's prompt on their way from the scheduler: what is here, and what to ask for next. Pure."""

from libs.contracts.messages import PromptScores
from services.gateway.notes import Note, notes_of

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5


class Scoring:
    """Mutable, owned by a stream. Asked for once the first token is here: then the scheduler has all of them."""

    def __init__(self) -> None:
        self.notes: list[Note] = []  # of the prompt's ids but the first
        self.is_asking = False
        self.pause_s = FIRST_PAUSE_S  # before the next question, when an answer brought nothing

    @property
    def next(self) -> int:
        """Index of the first id whose score is missing."""
        return 1 + len(self.notes)

    def is_whole(self, prompt_tokens: int) -> bool:
        return self.next >= prompt_tokens

    def add(self, scores: PromptScores | None) -> None:
        """Take an answer to a question from `next` on, or that it brought nothing."""
        if scores is None or scores.first != self.next:
            self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
            return
        self.pause_s = FIRST_PAUSE_S
        self.notes += notes_of(scores.logprobs, scores.top_ids, scores.top_logprobs, scores.ranks)
