"""What others have to answer: ends told to gateways, kills asked of hosts. Each is repeated until it is."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from libs.contracts import codec, flow
from libs.contracts.errors import MalformedMessage, Unavailable
from libs.contracts.messages import Gone, Kill, Known
from libs.runtime.bus import Bus
from libs.runtime.logs import get_logger
from services.scheduler.background import Background
from services.scheduler.events import AckRequest, Answered, Event, KillWorker, Tell

ANSWER_TIMEOUT_S = 1.0
KILL_TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0

T = TypeVar("T")

log = get_logger("scheduler")


class Outbox:
    def __init__(self, bus: Bus, post: Callable[[Event], None], background: Background) -> None:
        self._bus, self._post, self._background = bus, post, background
        self._telling: dict[str, list[asyncio.Task[None]]] = {}

    def tell(self, command: Tell) -> None:
        task = self._background.spawn(self._tell(command))
        self._telling.setdefault(command.message.request_id, []).append(task)

    def forget(self, command: AckRequest) -> None:
        """Stop telling about this request."""
        for task in self._telling.pop(command.request_id, ()):
            task.cancel()

    def kill(self, command: KillWorker) -> None:
        log.warning("worker_lost", incarnation=command.incarnation, host=command.host)
        self._background.spawn(self._kill(command))

    async def _tell(self, command: Tell) -> None:
        payload = codec.encode_in("RepliesMessage", command.message)
        answer = await self._ask(
            flow.replies_subject(command.gateway), payload, lambda reply: codec.decode(Known, reply), ANSWER_TIMEOUT_S
        )
        self._post(Answered(command.message.request_id, answer.live))

    async def _kill(self, command: KillWorker) -> None:
        payload = codec.encode_in("HostMessage", Kill(command.incarnation))
        self._post(await self._ask(flow.host_subject(command.host), payload, _gone, KILL_TIMEOUT_S))

    async def _ask(self, subject: str, payload: bytes, parse: Callable[[bytes], T], timeout_s: float) -> T:
        """The first answer that makes sense, however long it takes."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return parse(await self._bus.request(subject, payload, timeout_s=timeout_s))
            except (Unavailable, MalformedMessage) as error:
                log.debug("asked_again", subject=subject, reason=error.message)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _gone(reply: bytes) -> Gone:
    message = codec.decode_in("HostReply", reply)
    if not isinstance(message, Gone):
        raise MalformedMessage("a Kill is answered by Gone")
    return message
