"""A cell of a second term over the pool, the worker and the gateway of a first one."""

from services.scheduler.state import DECODE
from tests.fakes.engine import expected
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell, params, prompt

PROMPT, SAMPLING = prompt(40), params(60)
EXPECTED = expected(PROMPT, SAMPLING)[0]


def take_over(new: Cell, old: Cell) -> None:
    """The next term is over the same pool, and in front of the same gateway."""
    new.pool, new.gateway = old.pool, old.gateway
    new.gateway.resend = lambda request_id, choice, position: new.resend(request_id, position, choice).ids


def succeeded(generated: int = 12, **changes: object) -> tuple[Cell, FakeWorker]:
    """A cell of term 2 and the worker of term 1, in the middle of `r`, not yet attached."""
    old = Cell()
    worker = old.add_worker("decode-1", DECODE)
    old.submit("r", PROMPT, SAMPLING)
    old.run(lambda: old.choice("r").generated == generated)
    new = Cell(term=2, **changes)  # type: ignore[arg-type]
    take_over(new, old)
    worker.detach()
    new.workers[worker.incarnation] = worker
    return new, worker
