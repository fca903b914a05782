"""The process in which grammars are tried: a fork of it for each, which its limits may end. Run by `Grammars`.

A grammar is a client's program for a compiler that was not made for enemies: it may take for ever, or overflow the
stack. Argument 1 is the model's directory, argument 2 a socket over which the sockets of the trials come.
"""

import os
import resource
import signal
import socket
import sys
import threading
from pathlib import Path

from llguidance import LLTokenizer

from libs.contracts import codec
from libs.contracts.errors import ConfigError, InvalidRequest
from libs.contracts.messages import Grammar
from libs.structured.compiling import compile_grammar, try_out
from libs.structured.resolve import GrammarRefused, resolve
from libs.structured.vocabulary import open_vocabulary
from libs.text.tokenizer import Tokenizer

CPU_S = 1.0  # of one trial
MEMORY_BYTES = 512 << 20  # of addresses that a trial adds to those of this process
STACK_BYTES = 4 << 20  # workers have more: what passes here does not overflow theirs
ACCEPTED, REFUSED = b"+", b"-"


def main() -> None:
    tokenizer = Tokenizer.from_dir(Path(sys.argv[1]))
    control = socket.socket(fileno=int(sys.argv[2]))
    vocabulary = _vocabulary(tokenizer)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries who ends; the socket tells
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:  # the tokenizer is gone
            return
        trial = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            control.close()
            _limit()
            _try(vocabulary, trial)
        trial.close()


def _vocabulary(tokenizer: Tokenizer) -> LLTokenizer | None:
    """None for a model that never says that an answer is complete."""
    try:
        return open_vocabulary(tokenizer, tokenizer.eos_ids, tokenizer.vocab_size)
    except ConfigError:
        return None


def _limit() -> None:
    """From here on the kernel ends this process where it goes on for too long."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most_bytes = _used_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    Path("/proc/self/oom_score_adj").write_text("1000")  # where memory is short, nobody else is ended for it
    signal.setitimer(signal.ITIMER_PROF, CPU_S)


def _used_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _try(vocabulary: LLTokenizer | None, trial: socket.socket) -> None:
    """Read one grammar, answer it resolved or the reason against it, and end."""
    with trial, trial.makefile("rb") as incoming:
        grammar = codec.decode(Grammar, incoming.read())
        answers: list[bytes] = []
        threading.stack_size(STACK_BYTES)
        compiling = threading.Thread(target=lambda: answers.append(_answer(vocabulary, grammar)))
        compiling.start()
        compiling.join()
        for answer in answers:
            trial.sendall(answer)
    os._exit(0)


def _answer(vocabulary: LLTokenizer | None, grammar: Grammar) -> bytes:
    try:
        if vocabulary is None:
            raise GrammarRefused(grammar, "this model has no end of sequence, so no answer is ever complete")
        resolved = resolve(grammar)
        try_out(compile_grammar(vocabulary, resolved), resolved, vocabulary.eos_tokens)
    except InvalidRequest as error:
        return REFUSED + error.message.encode()
    return ACCEPTED + codec.encode(resolved)


if __name__ == "__main__":
    main()
