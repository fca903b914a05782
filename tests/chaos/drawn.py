"""A schedule of faults drawn from a seed, struck at a whole deployment in virtual time (tests/model/world.py)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.model.checks import check, finish
from tests.model.process import Process
from tests.model.worker import Worker
from tests.model.world import World

SCHEDULERS_MAX: Final = 3
WORKERS_MAX: Final = 4
AGENT: Final = "host.host"  # what leads to the host agent
MOVES: Final = (8, 40)  # fewest and most of one schedule


@dataclass
class Schedule:
    """`moves` tells what was done, for whoever looks at a failure."""

    seed: int
    moves: list[str] = field(default_factory=list)

    def run(self) -> World:
        """Strike, heal, and let everything come to its end. Raises AssertionError for whatever does not hold."""
        rng = Random(self.seed)
        role = rng.choice(("hybrid", "disaggregated", "auto"))
        world = World(
            blocks=rng.choice((14, 24, 64)),
            role=role,
            prefillers=0 if role == "hybrid" else 1,
            decoders=rng.randint(1, 2),
        )
        try:
            world.flow(0.2)
            for _ in range(rng.randint(*MOVES)):
                kind = rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
                self.moves.append(f"{world.now_s:.2f} {kind.__name__}")
                kind(world, rng)
                check(world)
            finish(world)
        finally:
            world.close()
        return world


def submit(world: World, rng: Random) -> None:
    world.submit(rng.randrange(1 << 16))


def flow(world: World, rng: Random) -> None:
    world.flow(rng.choice((0.02, 0.1, 0.3, 1.0)))


def storm(world: World, rng: Random) -> None:
    world.flow(rng.choice((0.1, 0.3, 1.0)), rng)


def calm(world: World, rng: Random) -> None:
    """Time passes, and not one message arrives."""
    world.pass_s(rng.choice((0.05, 0.3, 1.1)))


def leave(world: World, rng: Random) -> None:
    """A client goes away; a gateway that stands still has not even begun with its last ones."""
    number = rng.randrange(1 << 16)
    if not any(gateway.is_frozen for gateway in world.gateways):
        world.leave(number)


def kill(world: World, rng: Random) -> None:
    if processes := world.processes:
        world.kill(rng.choice(processes))
        world.settle()


def freeze(world: World, rng: Random) -> None:
    if processes := [process for process in world.processes if not process.is_frozen]:
        rng.choice(processes).is_frozen = True


def thaw(world: World, rng: Random) -> None:
    if processes := [process for process in world.processes if process.is_frozen]:
        _thaw(rng.choice(processes))
        world.settle()


def haunt(world: World, rng: Random) -> None:
    """One stands still until its work has moved, and Kill is held back: it thaws, and steps beside its successor."""
    holding = [worker for worker in world.workers if worker.held and not worker.is_frozen]
    if not holding:
        return
    worker = rng.choice(holding)
    if rng.random() < 0.5:
        world.step(worker)  # it stands still in the middle of a step
    worker.is_frozen = True
    world.network.held.add(AGENT)
    if len(world.workers) < WORKERS_MAX:
        world.start_worker(worker.role)
    for _ in range(3):
        world.flow(rng.choice((0.3, 1.1)))
        check(world)
        submit(world, rng)
    if worker.is_alive:
        _thaw(worker)
        world.settle()


def cut(world: World, rng: Random) -> None:
    world.cut(rng.randrange(1 << 16))


def block(world: World, rng: Random) -> None:
    """A way is closed: to the host agent, on a link, or to and from a process."""
    names = [AGENT, *(name for channel in world.network.busy for name in channel)]
    world.network.held.add(rng.choice(names))


def unblock(world: World, rng: Random) -> None:
    world.network.held.clear()


def restart(world: World, rng: Random) -> None:
    world.restart()


def stand_in(world: World, rng: Random) -> None:
    """Another scheduler takes the cell, though the one before may live."""
    if len(world.schedulers) < SCHEDULERS_MAX:
        world.start_scheduler()
        world.settle()


def _thaw(process: Process) -> None:
    """A worker's thread may come first, and take a step before anything that arrived meanwhile is read."""
    process.is_frozen = False
    if isinstance(process, Worker):
        process.step_blindly()


KINDS: Final[dict[Callable[[World, Random], None], int]] = {
    submit: 8,
    flow: 10,
    storm: 4,
    calm: 2,
    leave: 1,
    kill: 4,
    freeze: 3,
    thaw: 3,
    haunt: 2,
    cut: 2,
    block: 1,
    unblock: 2,
    restart: 4,
    stand_in: 1,
}
