"""What a lost worker leaves behind. Plain values; memory.py makes and buries them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tail:
    """The first `tokens` tokens of a block are committed; it is referenced until they are copied, and never written."""

    block: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Remains:
    """Blocks that a lost worker may still write, perhaps only after it thaws: nobody else reads or gets them.

    `named` is what other workers' orders said of them; see block_pool.py.
    """

    table: tuple[int, ...]
    named: dict[str, int]
