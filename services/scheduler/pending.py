"""What a worker's book has noted and no report has settled yet. Plain values."""

from dataclasses import dataclass, field

from libs.contracts.messages import Chunk
from services.scheduler.choice import Choice


@dataclass(slots=True)
class Pending:
    """The next version so far."""

    removed: list[int] = field(default_factory=list)
    added: dict[int, Choice] = field(default_factory=dict)
    grants: dict[int, list[int]] = field(default_factory=dict)
    untils: dict[int, int] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.grants or self.untils or self.chunks)


@dataclass(frozen=True, slots=True)
class Planned:
    """A chunk item in a version that is sent but not reported."""

    version: int
    choice: Choice
    tokens: int
    beside: bool  # rows decode in the same step


@dataclass(frozen=True, slots=True)
class Extension:
    """A version gives a sequence blocks behind the first `blocks` of its table."""

    version: int
    handle: int
    blocks: int
