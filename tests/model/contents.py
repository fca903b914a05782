"""What is in the blocks of a modelled pool, token by token, and who may still write to them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BLOCK_TOKENS = 4
Written = tuple[str, tuple[int, ...]]  # the tenant, and all tokens up to this one
GARBAGE: Written = ("", ())


@dataclass(frozen=True)
class Ghost:
    """A worker may write to a block from a slot on, until it begins a version, or is gone."""

    worker: str
    version: int
    block: int
    slot: int


class Contents:
    def __init__(self, blocks: int) -> None:
        self.blocks = [[GARBAGE] * BLOCK_TOKENS for _ in range(blocks)]
        self._ghosts: list[Ghost] = []

    def at(self, table: Sequence[int], position: int) -> Written:
        return self.blocks[table[position // BLOCK_TOKENS]][position % BLOCK_TOKENS]

    def write(self, block: int, slot: int, token: Written) -> None:
        self.blocks[block][slot] = token

    def copy(self, source: int, target: int, tokens: int) -> None:
        self.blocks[target][:tokens] = self.blocks[source][:tokens]

    def make_fresh(self, blocks: Iterable[int]) -> None:
        """A worker sets the fill counts of what it is granted to 0."""
        for block in blocks:
            self.blocks[block] = [GARBAGE] * BLOCK_TOKENS

    def let_haunt(self, worker: str, version: int, table: Sequence[int], first: int) -> None:
        """A worker may write on in a table, from a position on."""
        for index in range(first // BLOCK_TOKENS, len(table)):
            self._ghosts.append(Ghost(worker, version, table[index], max(0, first - index * BLOCK_TOKENS)))

    def haunt(self) -> None:
        """Whoever may write somewhere does."""
        for ghost in self._ghosts:
            self.blocks[ghost.block][ghost.slot :] = [GARBAGE] * (BLOCK_TOKENS - ghost.slot)

    def begun(self, worker: str, version: int) -> None:
        self._ghosts = [ghost for ghost in self._ghosts if ghost.worker != worker or ghost.version > version]

    def gone(self, worker: str) -> None:
        self._ghosts = [ghost for ghost in self._ghosts if ghost.worker != worker]
