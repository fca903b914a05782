"""What a worker needs of an engine and a pool. No torch here: the fake engine of the tests stands behind them, too."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from libs.contracts.messages import Grammar
from libs.engine.rows import Sampled, StepRow


class StepEngine(Protocol):
    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        """Write the KV of every row, publish its fill counts, draw where asked: one entry per row, in order.

        A row that is not finite publishes nothing and answers `is_nan`, whether or not it was to draw.
        """


class FillCounts(Protocol):
    """Tokens written, per block of the pool; current whenever it is read."""

    def __getitem__(self, block_id: int, /) -> Any: ...


class BlockPool(Protocol):
    """The blocks of a pool as far as a standing order touches them between steps."""

    @property
    def fill_counts_N(self) -> FillCounts: ...

    def reset(self, block_ids: Sequence[int]) -> None:
        """Make these blocks fresh: fill count 0."""

    def copy(self, source: int, target: int, tokens: int) -> None:
        """The first `tokens` tokens of `source` into `target`, which is then filled as far as `source` was."""


class HostTier(Protocol):
    """Blocks of the pool that rest in host memory, or in a file. A fill count travels with its block."""

    @property
    def blocks(self) -> int: ...

    def swap_out(self, block: int, host_block: int) -> None:
        """Copy a block of the pool into one of the tier."""

    def swap_in(self, block: int, host_block: int) -> None:
        """Copy a block of the tier into one of the pool, which is then filled as far as it was."""


class Constraint(Protocol):
    """What a grammar lets follow the answer of one sequence."""

    mask_W: npt.NDArray[np.uint32]  # of the vocabulary, a bit an id
    mask_ready: npt.NDArray[np.int32]  # one element, 0 while the mask is being filled

    @property
    def is_open(self) -> bool:
        """It can be asked: the grammar is compiled, and has taken the ids known at the beginning."""

    def add(self, token_id: int) -> None:
        """The answer has grown by this id. Not while the mask is being filled."""

    def want(self) -> None:
        """Have the mask filled for what may follow now, with the next `Grammars.fill_masks`.

        A grammar that is at a dead end bans all.
        """


class Grammars(Protocol):
    def open(self, grammar: Grammar, answer_ids: Sequence[int]) -> Constraint:
        """Begin to compile. Does not wait."""

    def fill_masks(self) -> None:
        """Begin to fill the masks that are wanted: those of one step. Does not wait."""
