"""What a tokenizer knows of how busy its cells are."""

import asyncio

from libs.contracts import codec, flow
from libs.contracts.messages import CellRecord, CellStatus
from services.tokenizer.choose import Load
from services.tokenizer.loads import Loads
from tests.fakes.bus import FakeBus

CELLS = [CellRecord("m", name, 1, "s", "", 16, "digest", 0) for name in ("c0", "c1")]


class Cells:
    """Schedulers that answer on a bus, each with so many waiting and running; `asked` counts."""

    def __init__(self, bus: FakeBus) -> None:
        self.busy, self.asked = {"c0": (0, 0), "c1": (0, 0)}, 0
        self.workers: tuple[str, ...] = ("w",)
        self._bus = bus

    async def serve(self) -> "Cells":
        for cell in self.busy:
            await self._bus.serve(flow.control_subject(cell), lambda _, __, cell=cell: self._answer(cell))  # type: ignore[misc]
        return self

    async def _answer(self, cell: str) -> bytes:
        self.asked += 1
        waiting, running = self.busy[cell]
        return codec.encode(CellStatus(cell, "m", 1, self.workers, 9, 9, 0, 0, 0, 16, waiting, running))


async def test_one_cell_is_not_asked() -> None:
    """There is nothing to choose, so it costs nothing."""
    bus = FakeBus()
    cells = await Cells(bus).serve()
    assert await Loads(bus.as_bus()).of(CELLS[:1]) == {} and cells.asked == 0


async def test_the_first_prompt_waits_for_the_answers_and_the_next_ones_do_not() -> None:
    """Those go by what is known, and by what was sent since."""
    bus = FakeBus()
    cells = await Cells(bus).serve()
    loads = Loads(bus.as_bus())
    cells.busy["c0"] = (2, 3)
    assert await loads.of(CELLS) == {"c0": Load(2, 3), "c1": Load(0, 0)}
    loads.sent("c1")
    loads.sent("nobody")
    assert await loads.of(CELLS) == {"c0": Load(2, 3), "c1": Load(0, 1)}
    assert cells.asked == 2


async def test_a_cell_that_says_nothing_or_has_no_worker_is_not_known() -> None:
    """So the others are chosen; with nobody known all are as good."""
    bus = FakeBus()
    cells = await Cells(bus).serve()
    bus.deaf.add(flow.control_subject("c0"))
    assert (await Loads(bus.as_bus()).of(CELLS)).keys() == {"c1"}
    cells.workers = ()
    assert await Loads(bus.as_bus()).of(CELLS) == {}


async def test_what_was_said_is_asked_again_beside_the_prompts() -> None:
    """After a quarter of a second, once for all that come meanwhile."""
    bus = FakeBus()
    cells = await Cells(bus).serve()
    loads = Loads(bus.as_bus())
    await loads.of(CELLS)
    cells.busy["c1"] = (7, 7)
    loads._last.at_s -= 0.3
    old = [await loads.of(CELLS) for _ in range(3)]
    assert old == [{"c0": Load(0, 0), "c1": Load(0, 0)}] * 3
    for _ in range(5):
        await asyncio.sleep(0)
    assert (await loads.of(CELLS))["c1"] == Load(7, 7) and cells.asked == 4
