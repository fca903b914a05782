"""What a worker's book has noted and no report has settled yet. Plain values."""

from dataclasses import dataclass, field

from libs.contracts.messages import BlockGrant, Chunk, Delta, Swap, Until
from services.scheduler.choice import Choice
from services.scheduler.chunk_size import Pace


@dataclass(slots=True)
class Pending:
    """The next version so far."""

    removed: list[int] = field(default_factory=list)
    added: dict[int, Choice] = field(default_factory=dict)
    grants: dict[int, list[int]] = field(default_factory=dict)
    untils: dict[int, int] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    swap_outs: list[Swap] = field(default_factory=list)  # of those that it removes, or of nobody

    def __bool__(self) -> bool:
        changes = (self.removed, self.added, self.grants, self.untils, self.chunks, self.swap_outs)
        return any(changes)

    def delta(self, term: int, version: int) -> Delta:
        """As it goes out, but for its hash."""
        added = self.added.values()
        return Delta(
            term,
            version,
            removed=tuple(self.removed),
            added=tuple(choice.resident() for choice in added),
            grants=tuple(BlockGrant(handle, tuple(blocks)) for handle, blocks in self.grants.items()),
            untils=tuple(Until(handle, until) for handle, until in self.untils.items()),
            copies=tuple(copy for choice in added for copy in choice.copies),
            chunks=tuple(self.chunks),
            swap_outs=tuple(self.swap_outs),
            swap_ins=tuple(choice.swap_in() for choice in added if choice.swapped),
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """A chunk item in a version that is sent but not reported."""

    version: int
    choice: Choice
    tokens: int
    pace: Pace  # what its step aims at


@dataclass(frozen=True, slots=True)
class Extension:
    """A version gives a sequence blocks behind the first `blocks` of its table."""

    version: int
    handle: int
    blocks: int
