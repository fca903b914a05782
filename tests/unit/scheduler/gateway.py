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

    def __init__(self, resend: Callable[[str, int, int], Sequence[int]]) -> None:
        self.resend = resend  # the scheduler's log of a choice from a position on
        self.choices: dict[str, list[Held]] = {}
        self.dropped = 0

    @property
    def held(self) -> dict[str, Held]:
        """The first choice of each request."""
        return {request_id: choices[0] for request_id, choices in self.choices.items()}

    def open(self, request_id: str, choices: int = 1) -> None:
        self.choices.setdefault(request_id, [Held() for _ in range(choices)])

    def close(self, request_id: str) -> None:
        self.choices.pop(request_id, None)

    def frame(self, resident: Resident, row: RowResult) -> None:
        held = self._held(resident)
        if held is None or held.end or resident.epoch < held.epoch:
            self.dropped += 1
            return
        held.epoch = resident.epoch
        if row.position > len(held.ids):
            self.repair(resident.request_id, resident.choice)
        for position, token in enumerate(row.ids, row.position):
            assert position <= len(held.ids), "a gap"
            if position == len(held.ids):
                held.ids.append(token)
            assert held.ids[position] == token, "a delivered token changed"
        held.end = row.end

    def repair(self, request_id: str, choice: int = 0) -> None:
        """Take what the scheduler has logged beyond what came in frames: those of an old epoch were dropped."""
        held = self.choices[request_id][choice]
        held.ids += self.resend(request_id, choice, len(held.ids))

    def stop(self, request_id: str, position: int, choice: int = 0) -> None:
        """A stop string ended there."""
        held = self.choices[request_id][choice]
        del held.ids[position + 1 :]
        held.end = "stop"

    def is_fenced(self, resident: Resident) -> bool:
        """Whether nothing that this attempt says is heard any more."""
        held = self._held(resident)
        return held is None or bool(held.end) or resident.epoch < held.epoch

    def answer(self, message: EpochRaised | LogQuery) -> list[RequestLog]:
        if isinstance(message, LogQuery):
            return [self._log(request_id) for request_id in message.request_ids]
        if message.request_id in self.choices:
            choices = self.choices[message.request_id]
            for raised in [raised for raised in message.choices if raised.choice < len(choices)]:
                held = choices[raised.choice]
                held.epoch = max(held.epoch, raised.epoch)
                held.deaths, held.died_at = raised.deaths, raised.died_at
        return [self._log(message.request_id)]

    def _held(self, resident: Resident) -> Held | None:
        """None, too, for a hypothesis that it does not know of."""
        choices = self.choices.get(resident.request_id, [])
        return choices[resident.choice] if resident.choice < len(choices) else None

    def _log(self, request_id: str) -> RequestLog:
        choices = self.choices.get(request_id)
        if choices is None:
            return RequestLog(request_id, False, ())
        logs = [
            ChoiceLog(index, tuple(held.ids), held.end, held.epoch, held.deaths, held.died_at)
            for index, held in enumerate(choices)
        ]
        return RequestLog(request_id, True, tuple(logs))
