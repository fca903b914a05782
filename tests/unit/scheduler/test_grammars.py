"""A request whose grammar a worker compiles: it is waited for, holds nobody up, and is no sign of a death."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from libs.contracts.messages import Grammar
from services.scheduler.choice import Phase
from tests.fakes.engine import VOCAB_SIZE, expected
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt

GRAMMAR = Grammar("llguidance", "any", "structured_outputs")
SAMPLING, FREE = params(60, grammar=GRAMMAR), params(60)


class Lenient:
    """Lets everything follow, once it is open."""

    def __init__(self) -> None:
        self.is_open = False
        self.mask_W = np.full(VOCAB_SIZE // 32, 0xFFFFFFFF, np.uint32)
        self.mask_ready = np.ones(1, np.int32)

    def add(self, token_id: int) -> None: ...

    def want(self) -> None: ...


class Compiler:
    def __init__(self, cell: Cell) -> None:
        self.made: list[Lenient] = []
        for worker in cell.workers.values():
            worker.residents._grammars = self

    def open(self, grammar: Grammar, answer_ids: Sequence[int]) -> Lenient:
        self.made.append(Lenient())
        return self.made[-1]

    def fill_masks(self) -> None: ...

    def finish(self) -> None:
        for constraint in self.made:
            constraint.is_open = True


def tokens(cell: Cell) -> tuple[int, ...]:
    return expected(prompt(40), params(60, ignore_eos=False))[0]


@pytest.mark.parametrize("make", [hybrid, disaggregated])
def test_a_worker_that_compiles_is_not_dead(make: Callable[..., Cell]) -> None:
    """Its only row makes no progress for seconds; then it goes on."""
    cell = make()
    compiler = Compiler(cell)
    cell.submit("r", prompt(40), SAMPLING)
    cell.run()
    cell.pass_while_alive(8.0)
    assert cell.killed == [] and cell.choice("r").cursor == 39

    while not cell.choice("r").end:
        compiler.finish()
        cell.run()
    assert cell.log("r") == tokens(cell)


def test_a_worker_that_never_has_compiled_is_dead_at_last() -> None:
    """Compiling is bounded: after ten seconds its silence counts."""
    cell = hybrid()
    Compiler(cell)
    cell.submit("r", prompt(40), SAMPLING)
    cell.run()
    cell.pass_while_alive(13.0)
    assert [kill.incarnation for kill in cell.killed] == ["decode-1-life"]


def test_who_has_no_grammar_does_not_wait_for_one() -> None:
    """The other rows of the batch advance to their ends."""
    cell = hybrid()
    Compiler(cell)
    cell.submit("r", prompt(40), SAMPLING)
    cell.submit("free", prompt(30, 300), FREE)
    cell.run()

    assert cell.log("free") == expected(prompt(30, 300), FREE)[0]
    assert cell.choice("r").phase is Phase.PREFILLING
