"""One request and its choices: they share prompt, gateway and deadline; each has its own tokens and its own end."""

from dataclasses import dataclass

from libs.contracts.messages import Sequence
from services.scheduler.beam import Search
from services.scheduler.choice import Choice, Phase


@dataclass(slots=True, eq=False)
class Group:
    """Owned by State, from the request's arrival until nobody owes anybody anything about it."""

    sequence: Sequence  # as it came
    choices: tuple[Choice, ...]  # by index; of a beam search as many as live on
    search: Search | None = None

    @property
    def request_id(self) -> str:
        return self.sequence.request_id

    @property
    def gateway(self) -> str:
        return self.sequence.gateway

    @property
    def deadline_s(self) -> float:
        return self.sequence.deadline_unix_ms / 1000

    @property
    def leader(self) -> Choice:
        """Who computes the prompt for all of them, as long as they can fork from it."""
        return self.choices[-1]

    @property
    def is_open(self) -> bool:
        """Tokens may still be generated."""
        return any(choice.is_open for choice in self.choices)

    @property
    def is_failed(self) -> bool:
        return any(choice.phase is Phase.FAILED for choice in self.choices)

    @property
    def answers(self) -> tuple[Choice, ...]:
        """Those that its gateway knows of."""
        return self.choices[: max(1, self.sequence.choices)]

    def choice(self, index: int) -> Choice | None:
        return self.choices[index] if index < len(self.choices) else None
