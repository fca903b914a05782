"""Grammars of a worker: compiled in one thread, masks filled in another, and nobody waits for either."""

import random
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import numpy as np
import pytest
from llguidance import LLTokenizer

from libs.contracts.messages import Grammar
from libs.engine.worker.constraint import Constraint
from libs.engine.worker.grammars import KEPT, Compiled, WorkerGrammars
from libs.structured import compiling
from libs.structured.resolve import GrammarRefused, resolve
from tests.unit.structured.walks import Language

SMALL = Language.small()
SIZE = SMALL.vocabulary.vocab_size
SOON_S = 10.0


def grammar(source: str) -> Grammar:
    return resolve(Grammar("regex", source, "structured_outputs"))


class Stage:
    """Real threads. `gate` holds up whoever opens the vocabulary; each opened constraint is a word in `woken`."""

    def __init__(self) -> None:
        self.gate, self.opened = threading.Event(), 0
        self.woken: SimpleQueue[None] = SimpleQueue()
        self.grammars = WorkerGrammars(self._vocabulary, SIZE, lambda: self.woken.put(None))

    def _vocabulary(self) -> LLTokenizer:
        assert self.gate.wait(SOON_S)
        self.opened += 1
        return SMALL.vocabulary

    def opens(self, constraint: Constraint) -> Constraint:
        while not constraint.is_open:
            self.woken.get(timeout=SOON_S)
        return constraint

    def text(self, constraint: Constraint) -> bytes:
        """What a mask allows, once it is ready."""
        constraint.want()
        self.grammars.fill_masks()
        deadline = threading.Event()
        while not constraint.mask_ready[0]:
            assert not deadline.wait(0.001)
        ids = np.flatnonzero(np.unpackbits(constraint.mask_W.view(np.uint8), bitorder="little"))
        return b"".join(SMALL.tokenizer.token_bytes(int(token_id)) for token_id in ids)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.gate.set()
    made.grammars.close()


def test_a_constraint_opens_when_its_grammar_is_compiled(stage: Stage) -> None:
    """Until then nobody has waited; then its mask is that of the ids known at the beginning."""
    first, second = (
        stage.grammars.open(grammar("ab[cd]"), SMALL.tokenizer.encode(text, add_special_tokens=False))
        for text in ("a", "ab")
    )
    assert isinstance(first, Constraint) and isinstance(second, Constraint)
    assert not (first.is_open or second.is_open)
    stage.gate.set()

    assert stage.text(stage.opens(first)) == b"b"
    assert stage.text(stage.opens(second)) == b"cd"
    assert stage.opened == 1


def test_what_is_no_grammar_opens_and_lets_nothing_follow(stage: Stage) -> None:
    """One that no tokenizer has checked, and one that no tokenizer would have let pass."""
    stage.gate.set()
    unchecked = stage.grammars.open(Grammar("regex", "a", "f"), ())
    broken = stage.grammars.open(Grammar("llguidance", "start: (", "f"), ())

    assert isinstance(unchecked, Constraint) and isinstance(broken, Constraint)
    assert (stage.text(stage.opens(unchecked)), stage.text(stage.opens(broken))) == (b"", b"")
    assert stage.text(stage.opens(stage.grammars.open(grammar("a"), ()))) == b"a"


def test_nothing_is_compiled_for_a_sequence_that_has_left(stage: Stage) -> None:
    """Its client went away while it waited; the next one is not held up by it."""
    stage.grammars.open(grammar("ab"), ())
    stays = stage.grammars.open(grammar("cd"), ())
    assert isinstance(stays, Constraint)
    stage.gate.set()
    stage.opens(stays)

    assert stage.woken.qsize() == 0


def test_what_is_compiled_is_kept_and_bounded() -> None:
    """The ones used latest; a matcher that is given away is a copy."""
    compiled = Compiled(lambda: SMALL.vocabulary)
    taken = compiled.matcher(grammar("ab"))
    assert taken.consume_tokens(SMALL.tokenizer.encode("a", add_special_tokens=False))
    for number in range(KEPT - 1):
        compiled.matcher(grammar(f"x{number}"))
        compiled.matcher(grammar("ab"))
    assert grammar("ab").source in compiled._matchers and grammar("x0").source in compiled._matchers

    compiled.matcher(grammar("y"))

    assert len(compiled._matchers) == KEPT and grammar("x0").source not in compiled._matchers
    assert SMALL.walk(compiled.matcher(grammar("ab")), random.Random(1))[1] == b"ab"


def test_a_grammar_whose_states_are_used_up_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies share them: an answer that has spent them all is not the end of the next one."""
    monkeypatch.setattr(compiling, "MAX_LEXER_STATES", 700)
    rng = random.Random(1)
    compiled, explosive = Compiled(lambda: SMALL.vocabulary), grammar("(.*a.{14}|.*b.{15}|.*c.{16}){3}")
    first = compiled.matcher(explosive)
    for token_id in SMALL.tokenizer.encode("".join(rng.choice("abcxyz") for _ in range(600)), add_special_tokens=False):
        if first.is_error() or not first.consume_token(token_id):
            break
        first.compute_bitmask()
    assert first.is_error()

    again = compiled.matcher(explosive)
    again.compute_bitmask()

    assert not again.is_error()


def test_only_what_was_checked_is_compiled() -> None:
    """A worker has no process that could be ended."""
    with pytest.raises(GrammarRefused, match="no tokenizer"):
        Compiled(lambda: SMALL.vocabulary).matcher(Grammar("regex", "a", "f"))
