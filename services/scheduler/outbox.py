"""What others have to answer: ends told to gateways and logs asked of them, kills and lists asked of hosts.

Each is repeated until it is answered.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from libs.contracts import codec, flow
from libs.contracts.errors import MalformedMessage, Unavailable
from libs.contracts.messages import Gone, Incarnations, Kill, Known, ListIncarnations, Logs, RequestLog
from libs.runtime.bus import Bus, NoResponder
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger
from services.scheduler.background import Background
from services.scheduler.events import (
    AckRequest,
    Answered,
    Ask,
    AskHost,
    Event,
    KillWorker,
    Listed,
    Logged,
    Tell,
)

ANSWER_TIMEOUT_S = 1.0
KILL_TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0
AGENTLESS_TRIES = 4  # 0.7 s: an agent that is still coming back to the broker is not absent

T = TypeVar("T")

log = get_logger("scheduler")


class Outbox:
    def __init__(
        self,
        bus: Bus,
        post: Callable[[Event], None],
        background: Background,
        *,
        cell: str,
        term: int,
        needs_agents: bool = True,
    ) -> None:
        """`needs_agents`: there was a term before, so who lives on a host is known when its agent has said it."""
        self._bus, self._post, self._background, self._cell, self._term = bus, post, background, cell, term
        self._needs_agents = needs_agents
        self._telling: dict[str, list[asyncio.Task[None]]] = {}

    def tell(self, command: Tell) -> None:
        self._repeat(command.message.request_id, self._tell(command))

    def ask(self, command: Ask) -> None:
        self._repeat(command.request_id, self._ask_log(command))

    def ask_host(self, command: AskHost) -> None:
        self._background.spawn(self._list(command))

    def forget(self, command: AckRequest) -> None:
        """Stop telling about this request."""
        for task in self._telling.pop(command.request_id, ()):
            task.cancel()

    def kill(self, command: KillWorker) -> None:
        log.warning("worker_lost", incarnation=command.incarnation, host=command.host)
        self._background.spawn(self._kill(command))

    def _repeat(self, request_id: str, work: Coroutine[Any, Any, None]) -> None:
        self._telling.setdefault(request_id, []).append(self._background.spawn(work))

    async def _tell(self, command: Tell) -> None:
        failpoint("scheduler.tell")
        payload = codec.encode_in("RepliesMessage", command.message)
        subject = flow.replies_subject(command.gateway)
        answer = await self._until_answered(subject, payload, _known, ANSWER_TIMEOUT_S, command.traceparent)
        self._post(Answered(command.message.request_id, answer.live))

    async def _kill(self, command: KillWorker) -> None:
        failpoint("scheduler.kill.before")
        payload = codec.encode_in("HostMessage", Kill(command.incarnation, self._term, self._cell))
        gone = await self._until_answered(flow.host_subject(command.host), payload, _gone, KILL_TIMEOUT_S)
        failpoint("scheduler.kill.gone")
        self._post(gone)

    async def _ask_log(self, command: Ask) -> None:
        failpoint("scheduler.epoch.ask")
        payload = codec.encode_in("RepliesMessage", command.message)
        subject = flow.replies_subject(command.gateway)
        parse = _log_of(command.request_id)
        answer = await self._until_answered(subject, payload, parse, ANSWER_TIMEOUT_S, command.traceparent)
        failpoint("scheduler.epoch.answered")
        self._post(Logged(answer))

    async def _list(self, command: AskHost) -> None:
        payload = codec.encode_in("HostMessage", ListIncarnations(self._term, self._cell))
        subject, tries = flow.host_subject(command.host), 0 if self._needs_agents else AGENTLESS_TRIES
        try:
            listed = await self._until_answered(subject, payload, _incarnations, ANSWER_TIMEOUT_S, absences_max=tries)
        except NoResponder:
            log.warning("no_host_agent", host=command.host)
            listed = Incarnations(())
        self._post(Listed(command.host, listed.incarnations))

    async def _until_answered(
        self,
        subject: str,
        payload: bytes,
        parse: Callable[[bytes], T],
        timeout_s: float,
        traceparent: str = "",
        *,
        absences_max: int = 0,
    ) -> T:
        """The first answer that makes sense, however long it takes.

        Raises NoResponder when nobody was there to answer that many times in a row; 0 is never.
        """
        pause_s, absences = FIRST_PAUSE_S, 0
        while True:
            try:
                return parse(await self._bus.request(subject, payload, timeout_s=timeout_s, traceparent=traceparent))
            except (Unavailable, MalformedMessage) as error:
                absences = absences + 1 if isinstance(error, NoResponder) else 0
                if absences_max and absences == absences_max:
                    raise
                log.debug("asked_again", subject=subject, reason=error.message)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _known(reply: bytes) -> Known:
    return codec.decode(Known, reply)


def _gone(reply: bytes) -> Gone:
    message = codec.decode_in("HostReply", reply)
    if not isinstance(message, Gone):
        raise MalformedMessage("a Kill is answered by Gone")
    return message


def _incarnations(reply: bytes) -> Incarnations:
    message = codec.decode_in("HostReply", reply)
    if not isinstance(message, Incarnations):
        raise MalformedMessage("a ListIncarnations is answered by Incarnations")
    return message


def _log_of(request_id: str) -> Callable[[bytes], RequestLog]:
    def parse(reply: bytes) -> RequestLog:
        for log_ in codec.decode(Logs, reply).requests:
            if log_.request_id == request_id:
                return log_
        raise MalformedMessage("an answer about other requests")

    return parse
