"""Has grammars tried in a process of their own, a few at once, and remembers the verdicts."""

import asyncio
import socket
import subprocess
import sys
from collections import Counter, OrderedDict
from pathlib import Path

from libs.contracts import codec
from libs.contracts.errors import HeadraceError, InvalidRequest, Overloaded, Unavailable
from libs.contracts.messages import Grammar
from libs.runtime.config import without_settings
from libs.runtime.logs import get_logger
from services.tokenizer.grammar_process import ACCEPTED, CPU_S

AT_ONCE = 4  # trials that run side by side: a short one does not wait for long ones to end
MOST_WAITING = 32  # different ones, those that run included
PATIENCE_S = 15.0  # for a trial that gets no processor
REMEMBERED_BYTES = 4 << 20  # of grammars with a verdict

log = get_logger("tokenizer")


class Grammars:
    """The process begins with the first grammar, and anew when it died; it ends with this one."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._room = asyncio.Semaphore(AT_ONCE)
        self._trials: dict[Grammar, asyncio.Task[Grammar | str]] = {}  # under way: who asks for the same waits for it
        self._verdicts = Verdicts()
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> "Grammars":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    async def check(self, grammar: Grammar) -> Grammar:
        """`grammar` resolved: it compiles within the limits. Raises InvalidRequest, Overloaded or Unavailable."""
        verdict = self._verdicts.get(grammar)
        self.counts["tried" if verdict is None else "remembered"] += 1
        if verdict is None:
            verdict = await asyncio.shield(self._trial(grammar))
            self._verdicts.put(grammar, verdict)
        if isinstance(verdict, Grammar):
            return verdict
        self.counts["refused"] += 1
        raise InvalidRequest(verdict, param=grammar.field)

    def _trial(self, grammar: Grammar) -> asyncio.Task[Grammar | str]:
        """The one under way, or a new one. Raises Overloaded."""
        trial = self._trials.get(grammar)
        if trial is None:
            if len(self._trials) >= MOST_WAITING:
                raise Overloaded("too many grammars wait to be compiled")
            trial = self._trials[grammar] = asyncio.create_task(self._tried(grammar))
            trial.add_done_callback(lambda _: self._trials.pop(grammar))
        return trial

    async def _tried(self, grammar: Grammar) -> Grammar | str:
        async with self._room:
            return await self._try(grammar)

    async def _try(self, grammar: Grammar) -> Grammar | str:
        """The grammar resolved, or what is wrong with it."""
        reader, writer = await asyncio.open_connection(sock=self._begin_trial())
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(codec.encode(grammar))
                writer.write_eof()
                answer = await reader.read()
        except TimeoutError as error:
            raise Unavailable("the grammar could not be compiled in time") from error
        except OSError as error:
            raise Unavailable("the grammar could not be compiled") from error
        finally:
            writer.close()
        if not answer and self._has_died():
            raise Unavailable("grammars cannot be compiled at the moment")
        if not answer:
            self.counts["ended"] += 1
            log.warning("grammar_trial_ended", kind=grammar.kind, source_bytes=len(grammar.source))
            return f"{grammar.field}: takes more than {CPU_S:g} s, or too much memory, to compile"
        kind, rest = answer[:1], answer[1:]
        return codec.decode(Grammar, rest) if kind == ACCEPTED else rest.decode()

    def _begin_trial(self) -> socket.socket:
        """Our end of the socket of a new trial."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._hand_over(theirs)
            except HeadraceError:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def _hand_over(self, trial: socket.socket) -> None:
        if self._has_died():
            self._start()
        assert self._control is not None
        try:
            socket.send_fds(self._control, [b"t"], [trial.fileno()])
        except OSError as error:
            raise Unavailable("grammars cannot be compiled at the moment") from error

    def _has_died(self) -> bool:
        """Whether there is no process: its end of the socket is closed. A trial that ended leaves it open."""
        try:
            return self._control is None or not self._control.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _start(self) -> None:
        self._stop()
        self._control, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "services.tokenizer.grammar_process", str(self._model_dir)]
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=without_settings(),
            )
        log.info("grammar_process_started", pid=self._process.pid)

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Verdicts:
    """What became of grammars: resolved, or what is wrong with it. The ones asked for latest, as many as have room."""

    def __init__(self, most_bytes: int = REMEMBERED_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._known: OrderedDict[Grammar, Grammar | str] = OrderedDict()

    def get(self, grammar: Grammar) -> Grammar | str | None:
        verdict = self._known.get(grammar)
        if verdict is not None:
            self._known.move_to_end(grammar)
        return verdict

    def put(self, grammar: Grammar, verdict: Grammar | str) -> None:
        if grammar not in self._known:
            self._bytes += _cost_bytes(grammar, verdict)
        self._known[grammar] = verdict
        while self._bytes > self._most_bytes:
            self._bytes -= _cost_bytes(*self._known.popitem(last=False))


def _cost_bytes(grammar: Grammar, verdict: Grammar | str) -> int:
    return 500 + len(grammar.source) + len(verdict if isinstance(verdict, str) else verdict.source)
