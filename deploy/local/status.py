"""What a running stack says of itself: every process asked at once over NATS, and the answers put beside state.json."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from deploy.local.options import BROKERS
from deploy.local.run_dir import Running, State
from deploy.local.stack import SUPERVISOR
from libs.contracts import codec, flow
from libs.contracts.messages import CellStatus, ServiceStatus, StatusQuery
from libs.runtime.bus import Bus

ANSWER_WINDOW_S: Final = 0.5
AUDIT_S: Final = 10.0


class ServiceLine(msgspec.Struct, frozen=True):
    name: str
    service: str
    pid: int
    port: int
    ready: bool
    detail: str


class Blocks(msgspec.Struct, frozen=True):
    total: int = 0
    free: int = 0
    cached: int = 0
    held: int = 0
    freeing: int = 0


class StackStatus(msgspec.Struct, frozen=True):
    """The content of `headrace status --json`."""

    phase: str
    base_url: str
    model: str
    pid: int  # of the supervisor
    services: tuple[ServiceLine, ...]
    blocks: Blocks
    block_tokens: int
    waiting: int
    running: int
    moved_sequences: int = 0  # of the schedulers' present terms, as the next one
    recomputed_tokens: int = 0
    other_models: tuple[str, ...] = ()  # served beside `model`
    problems: tuple[str, ...] | None = None  # of an audit; None where none was asked for

    @property
    def ready(self) -> bool:
        return all(service.ready for service in self.services)


async def ask_status(state: State, *, audit: bool = False) -> StackStatus:
    """The status of the stack that `state` tells of; with `audit` its schedulers look all over that they keep.

    Raises Unavailable when its broker, or a scheduler that is to audit, does not answer.
    """
    running = sum(child.pid != 0 and child.name not in BROKERS for child in state.children)
    async with Bus.connect(state.nats_url, service=SUPERVISOR, user=SUPERVISOR, password=state.nats_password) as bus:
        answers = await gather(bus, running, within_s=ANSWER_WINDOW_S)
        status = merge(state, answers)
        if audit:
            cells = sorted({cell.cell for answer in answers.values() for cell in answer.cells})
            status = msgspec.structs.replace(status, problems=await _audit(bus, cells))
        return status


async def gather(bus: Bus, answers: int, *, within_s: float) -> dict[int, ServiceStatus]:
    """Statuses by pid, of so many processes or of those that answered in time."""
    payloads = await bus.scatter(flow.STATUS_SUBJECT, b"", answers=answers, within_s=within_s)
    return {status.pid: status for status in (codec.decode(ServiceStatus, payload) for payload in payloads)}


async def _audit(bus: Bus, cells: Sequence[str]) -> tuple[str, ...]:
    question = codec.encode_in("ControlMessage", StatusQuery(audit=True))
    problems: list[str] = []
    for cell in cells:
        answer = await bus.request(flow.control_subject(cell), question, timeout_s=AUDIT_S)
        problems += codec.decode(CellStatus, answer).problems
    return tuple(problems)


def merge(state: State, answers: Mapping[int, ServiceStatus]) -> StackStatus:
    """Every child of the supervisor with its answer, and the numbers of the cell."""
    services = tuple(_line(child, answers.get(child.pid)) for child in state.children)
    cells = [cell for answer in answers.values() for cell in answer.cells]
    blocks = Blocks(
        total=sum(cell.blocks_total for cell in cells),
        free=sum(cell.blocks_free for cell in cells),
        cached=sum(cell.blocks_cached for cell in cells),
        held=sum(cell.blocks_held for cell in cells),
        freeing=sum(cell.blocks_freeing for cell in cells),
    )
    return StackStatus(
        phase=state.phase,
        base_url=state.base_url,
        model=state.model,
        other_models=state.other_models,
        pid=state.pid,
        services=services,
        blocks=blocks,
        block_tokens=state.block_tokens,
        waiting=sum(cell.waiting for cell in cells),
        running=sum(cell.running for cell in cells),
        moved_sequences=sum(cell.moved_sequences for cell in cells),
        recomputed_tokens=sum(cell.recomputed_tokens for cell in cells),
    )


def _line(child: Running, answer: ServiceStatus | None) -> ServiceLine:
    service = child.name.partition("-")[0]
    if answer:
        return ServiceLine(child.name, service, child.pid, answer.port, answer.ready, answer.detail)
    alive = child.pid != 0
    asked = service not in BROKERS
    detail = "no answer" if alive and asked else "" if alive else "not running"
    return ServiceLine(child.name, service, child.pid, 0, alive and not asked, detail)
