"""What a gateway holds of its requests, as the scheduler's core meets it: logs, epochs, and who is gone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from libs.contracts.messages import ChoiceLog, EpochRaised, LogQuery, RequestLog, Resident, RowResult


@dataclass(slots=True)
class Held:
    epoch: int = 1
    ids: list[int] = field(default_factory=list)
    end: str = ""
    deaths: int = 0
    died_at: int = 0


class FakeGateway:
    """Those of a lower epoch are dropped, two reports of a position must agree, and what is missing is asked for."""

    def __init__(self, resend: Callable[[str, int], Sequence[int]]) -> None:
        self.resend = resend  # the scheduler's log from a position on
        self.held: dict[str, Held] = {}
        self.dropped = 0

    def open(self, request_id: str) -> None:
        self.held.setdefault(request_id, Held())

    def close(self, request_id: str) -> None:
        self.held.pop(request_id, None)

    def frame(self, resident: Resident, row: RowResult) -> None:
        held = self.held.get(resident.request_id)
        if held is None or held.end or resident.epoch < held.epoch:
            self.dropped += 1
            return
        held.epoch = resident.epoch
        if row.position > len(held.ids):
            self.repair(resident.request_id)
        for position, token in enumerate(row.ids, row.position):
            assert position <= len(held.ids), "a gap"
            if position == len(held.ids):
                held.ids.append(token)
            assert held.ids[position] == token, "a delivered token changed"
        held.end = row.end

    def repair(self, request_id: str) -> None:
        """Take what the scheduler has logged beyond what came in frames: those of an old epoch were dropped."""
        held = self.held[request_id]
        held.ids += self.resend(request_id, len(held.ids))

    def stop(self, request_id: str, position: int) -> None:
        """A stop string ended there."""
        held = self.held[request_id]
        del held.ids[position + 1 :]
        held.end = "stop"

    def is_fenced(self, resident: Resident) -> bool:
        """Whether nothing that this attempt says is heard any more."""
        held = self.held.get(resident.request_id)
        return held is None or bool(held.end) or resident.epoch < held.epoch

    def answer(self, message: EpochRaised | LogQuery) -> list[RequestLog]:
        if isinstance(message, LogQuery):
            return [self._log(request_id) for request_id in message.request_ids]
        if message.request_id in self.held:
            held = self.held[message.request_id]
            held.epoch = max(held.epoch, message.epoch)
            held.deaths, held.died_at = message.deaths, message.died_at
        return [self._log(message.request_id)]

    def _log(self, request_id: str) -> RequestLog:
        held = self.held.get(request_id)
        if held is None:
            return RequestLog(request_id, False, 0, ())
        log = ChoiceLog(0, tuple(held.ids), held.end)
        return RequestLog(request_id, True, held.epoch, (log,), held.deaths, held.died_at)
