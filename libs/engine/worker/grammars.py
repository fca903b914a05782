"""Compiles the grammars of residents and fills their masks, each in a thread of its own beside that of the steps."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from llguidance import LLMatcher, LLTokenizer

from libs.contracts.errors import HeadraceError
from libs.contracts.messages import Grammar
from libs.engine.worker.constraint import Constraint
from libs.runtime.logs import get_logger
from libs.structured.compiling import compile_grammar
from libs.structured.resolve import RESOLVED, GrammarRefused

STACK_BYTES: Final = 16 << 20  # well above what a tokenizer tries grammars with
KEPT: Final = 32  # compiled grammars

log = get_logger("worker")


class WorkerGrammars:
    """`wake` is called when a constraint has opened. Threads and vocabulary, which take room, begin with the first."""

    def __init__(
        self, open_vocabulary: Callable[[], LLTokenizer], vocab_size: int, wake: Callable[[], None] = lambda: None
    ) -> None:
        self._open_vocabulary, self._vocab_size, self._wake = open_vocabulary, vocab_size, wake
        # By weak reference: for a sequence that has left since, nothing is compiled.
        self._new: SimpleQueue[tuple[Grammar, weakref.ref[Constraint]] | None] = SimpleQueue()
        self._wanted: list[Constraint] = []  # by the step that is being put together
        self._steps: SimpleQueue[list[Constraint] | None] = SimpleQueue()
        self._is_running = False

    def open(self, grammar: Grammar, answer_ids: Sequence[int]) -> Constraint:
        """Called by the step thread alone."""
        if not self._is_running:
            self._is_running = True
            _start("grammars", self._compile_all)
            _start("masks", self._fill_all)
        constraint = Constraint(answer_ids, self._vocab_size, self._wanted.append)
        self._new.put((grammar, weakref.ref(constraint)))
        return constraint

    def fill_masks(self) -> None:
        """Called by the step thread alone. The other thread is woken once a step: each time costs as much as a mask."""
        if self._wanted:
            self._steps.put(self._wanted.copy())
            self._wanted.clear()

    def close(self) -> None:
        self._new.put(None)
        self._steps.put(None)

    def _compile_all(self) -> None:
        compiled = Compiled(self._open_vocabulary)
        while (new := self._new.get()) is not None:
            grammar, reference = new
            if (constraint := reference()) is not None:
                _begin(constraint, grammar, compiled)
                self._wake()

    def _fill_all(self) -> None:
        while (wanted := self._steps.get()) is not None:
            for constraint in wanted:
                _fill(constraint)


class Compiled:
    """Matchers at the start of an answer, the ones used latest. Copies share what they find out of the grammar."""

    def __init__(self, open_vocabulary: Callable[[], LLTokenizer]) -> None:
        self._open_vocabulary = open_vocabulary
        self._vocabulary: LLTokenizer | None = None
        self._matchers: OrderedDict[str, LLMatcher] = OrderedDict()

    def matcher(self, grammar: Grammar) -> LLMatcher:
        """A matcher of one's own. Raises GrammarRefused, ConfigError."""
        if grammar.kind != RESOLVED:
            raise GrammarRefused(grammar, "no tokenizer has checked it")
        first = self._matchers.pop(grammar.source, None)
        if first is None or _is_spent(first):
            first = self._compile(grammar)
        self._matchers[grammar.source] = first
        if len(self._matchers) > KEPT:
            self._matchers.popitem(last=False)
        return first.deep_copy()

    def _compile(self, grammar: Grammar) -> LLMatcher:
        if self._vocabulary is None:
            self._vocabulary = self._open_vocabulary()
        return compile_grammar(self._vocabulary, grammar)


def _begin(constraint: Constraint, grammar: Grammar, compiled: Compiled) -> None:
    try:
        constraint.begin(compiled.matcher(grammar))
    except HeadraceError as error:
        log.warning("grammar_refused", reason=error.message)
        constraint.refuse(error.message)
    except Exception as error:  # the sequence ends, its worker does not
        log.error("grammar_failed", exc_info=error)
        constraint.refuse("it could not be compiled")


def _fill(constraint: Constraint) -> None:
    had_failed = bool(constraint.failure)
    try:
        constraint.fill()
    except Exception as error:
        log.error("mask_failed", exc_info=error)
    if constraint.failure and not had_failed:
        log.warning("grammar_dead_end", reason=constraint.failure.split("\n")[0])


def _is_spent(first: LLMatcher) -> bool:
    """Whether answers have used up the states that copies share: then any mask fails."""
    trial = first.deep_copy()
    trial.compute_bitmask()
    return trial.is_error()


def _start(name: str, run: Callable[[], None]) -> None:
    before = threading.stack_size(STACK_BYTES)
    threading.Thread(target=run, name=name, daemon=True).start()
    threading.stack_size(before)
