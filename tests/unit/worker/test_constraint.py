"""A resident with a grammar draws nothing else, waits alone while it compiles, and goes on from its ids anywhere."""

from collections.abc import Sequence
from queue import SimpleQueue

import numpy as np
import pytest

from libs.contracts.messages import Chunk, Grammar, RowWait, SamplingParams
from libs.engine.worker.constraint import Constraint
from libs.structured.resolve import resolve
from tests.fakes.engine import VOCAB_SIZE
from tests.unit.structured.walks import Language
from tests.unit.worker.orders import Orders, Stepper, ids_of, prompt, resident

SMALL = Language.small(VOCAB_SIZE)
ABC = resolve(Grammar("regex", "(abc){1,5}d", "structured_outputs"))


def ids(text: str) -> tuple[int, ...]:
    return tuple(SMALL.tokenizer.encode(text, add_special_tokens=False))


def opened(answer: str, source: str = "(abc){1,5}d") -> Constraint:
    """One whose masks are filled as soon as they are wanted."""
    constraint = Constraint(ids(answer), VOCAB_SIZE, Constraint.fill)
    constraint.begin(SMALL.matcher("regex", source))
    return constraint


def mask(constraint: Constraint) -> list[int]:
    constraint.want()
    assert constraint.mask_ready[0] == 1
    return np.flatnonzero(np.unpackbits(constraint.mask_W.view(np.uint8), bitorder="little")).tolist()


def test_a_mask_is_a_function_of_the_ids_alone() -> None:
    """Told one by one, or known at the beginning: the same may follow."""
    growing = opened("")
    for known in range(len("abcabc")):
        assert mask(growing) == mask(opened("abcabc"[:known]))
        growing.add(ids("abcabc"[known])[0])


def test_an_answer_that_is_complete_may_only_end() -> None:
    """Nothing follows it but the end of the sequence."""
    assert mask(opened("abcd")) == [SMALL.eos_id]


@pytest.mark.parametrize("answer", ["x", "abd"])
def test_ids_that_no_grammar_wrote_let_nothing_follow(answer: str) -> None:
    """A matcher that has failed would let an end follow, and a broken answer pass for a whole one."""
    assert mask(opened(answer)) == []


def test_what_cannot_be_compiled_lets_nothing_follow() -> None:
    """The row ends with a typed error; it is never drawn freely."""
    constraint = Constraint((), VOCAB_SIZE, Constraint.fill)
    constraint.refuse("too much")

    assert constraint.is_open and mask(constraint) == []


def test_the_step_that_waits_for_a_mask_never_waits_for_ever() -> None:
    """Whatever happens to the thread of masks, the mask is ready, and bans all."""

    class Broken:
        def consume_tokens(self, taken: Sequence[int]) -> bool:
            raise RuntimeError("a bug")

    constraint = opened("")
    constraint.mask_W.fill(7)
    constraint._matcher = Broken()  # type: ignore[assignment]
    constraint.add(1)

    with pytest.raises(RuntimeError):
        constraint.want()
    assert constraint.mask_ready[0] == 1 and not constraint.mask_W.any()


class SlowGrammars:
    """Compiles when it is told to."""

    def __init__(self) -> None:
        self.made: SimpleQueue[Constraint] = SimpleQueue()

    def open(self, grammar: Grammar, answer_ids: Sequence[int]) -> Constraint:
        constraint = Constraint(answer_ids, VOCAB_SIZE, Constraint.fill)
        self.made.put(constraint)
        return constraint

    def fill_masks(self) -> None: ...

    def compile(self) -> None:
        self.made.get_nowait().begin(SMALL.matcher("regex", "(abc){1,5}d"))


PARAMS = SamplingParams(temperature=0, max_tokens=60, grammar=ABC)


def test_only_the_row_whose_grammar_compiles_waits() -> None:
    """Its prompt is computed but for the last token, it says once why it draws nothing, and others go on."""
    grammars = SlowGrammars()
    worker = Stepper(eos_ids=(SMALL.eos_id,), grammars=grammars)
    first = worker.order(
        added=[
            resident(1, prompt(20), [4, 5, 6, 7, 8], params=PARAMS, until=60),
            resident(2, prompt(3), [9]),
        ],
        chunks=[Chunk(1, 20), Chunk(2, 3)],
    )
    second, third = worker.step(), worker.step()

    assert first is not None and second is not None and third is not None
    assert [(row.sequence, row.cursor, len(row.ids)) for row in first.rows] == [(1, 19, 0), (2, 3, 1)]
    assert [row.sequence for row in second.rows] == [2]
    assert (second.waits, third.waits) == ((RowWait(1, 1, "grammar_behind", 0),), ())

    grammars.compile()
    answer = ids_of([row for row in worker.run() if row.sequence == 1])

    text = SMALL.tokenizer.decode(list(answer[:-1]), skip_special_tokens=False)
    assert answer[-1] == SMALL.eos_id and text == "abc" * (len(text) // 3) + "d"


def test_a_new_term_is_told_whose_grammar_compiles() -> None:
    """It would else take the silence of that row for its worker's death."""
    worker = Stepper(eos_ids=(SMALL.eos_id,), grammars=SlowGrammars())
    added = resident(1, prompt(3), [4, 5, 6, 7, 8], params=PARAMS, until=60)
    worker.order(added=[added], chunks=[Chunk(1, 3)])
    before = worker.step()
    worker.residents.offer(Orders(term=2).snapshot(added, version=9))
    after = worker.step()

    assert before is not None and after is not None
    assert before.waits == after.waits == (RowWait(1, 1, "grammar_behind", 0),)


def test_a_resident_added_again_goes_on_by_its_ids() -> None:
    """A hand-over, a preemption, a worker's death: the answer is the same as without."""
    grammars = SlowGrammars()
    worker = Stepper(eos_ids=(SMALL.eos_id,), grammars=grammars)
    worker.order(added=[resident(1, prompt(3), [4, 5, 6, 7, 8], params=PARAMS, until=60)], chunks=[Chunk(1, 3)])
    grammars.compile()
    whole = ids_of(worker.run())

    other = Stepper(eos_ids=(SMALL.eos_id,), grammars=grammars)
    known = (*prompt(3), *whole[:2])
    other.order(
        added=[resident(1, known, [4, 5, 6, 7, 8], params=PARAMS, until=60, prompt_tokens=3)], chunks=[Chunk(1, 5)]
    )
    grammars.compile()

    assert ids_of(other.run()) == whole[2:]


def test_without_anybody_who_compiles_a_grammar_ends_its_sequence_alone() -> None:
    """It is never drawn freely."""
    worker = Stepper()
    result = worker.order(added=[resident(1, prompt(3), [4], params=PARAMS)], chunks=[Chunk(1, 3)])

    assert result is not None and [(row.sequence, row.end) for row in result.found] == [(1, "dead_end")]
