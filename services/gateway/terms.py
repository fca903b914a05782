"""Who leads each cell, as far as this gateway knows: what a lower term says is not obeyed."""

from collections.abc import Sequence

from libs.runtime.cells import CellDirectory


class Terms:
    """The highest term of each cell, from the directory or from what a scheduler said, whichever is ahead."""

    def __init__(self, directory: CellDirectory, models: Sequence[str]) -> None:
        self._directory, self._models = directory, models
        self._heard: dict[str, int] = {}

    def of(self, cell: str) -> int:
        """0 before anything is known."""
        records = (record for model in self._models for record in self._directory.get(model))
        listed = (record.term for record in records if record.cell == cell)
        return max(self._heard.get(cell, 0), max(listed, default=0))

    def is_stale(self, cell: str, term: int) -> bool:
        """Whether another scheduler leads by now; a term that was not known yet is remembered."""
        highest = self.of(cell)
        if term > highest:
            self._heard[cell] = term
        return term < highest
