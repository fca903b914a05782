"""The protocol under all that may happen: processes crash, freeze and thaw; messages get lost, late or doubled."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.checks import check, leftovers
from tests.model.worker import Worker
from tests.model.world import World

HEALING_S = 240.0
SCHEDULERS_MAX = 3
NUMBER = st.integers(0, 1 << 16)


class Protocol(RuleBasedStateMachine):
    """Each rule takes a number that chooses among what is possible; one that is impossible does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        blocks=st.sampled_from((9, 14, 24, 64)),
        role=st.sampled_from(("hybrid", "disaggregated", "auto")),
        decoders=st.integers(1, 2),
        calls=st.lists(NUMBER, max_size=3),
    )
    def begin(self, blocks: int, role: str, decoders: int, calls: list[int]) -> None:
        prefillers = 0 if role == "hybrid" else 1
        self.world = World(blocks=blocks, role=role, prefillers=prefillers, decoders=decoders)
        self.world.flow(0.2)
        for call in calls:
            self.world.submit(call)

    @rule(number=NUMBER)
    def submit(self, number: int) -> None:
        self.it.submit(number)

    @rule(seconds=st.sampled_from((0.02, 0.1, 0.1, 0.3, 1.0)))
    def flow(self, seconds: float) -> None:
        self.it.flow(seconds)

    @rule(seed=NUMBER, seconds=st.sampled_from((0.1, 0.3, 1.0)))
    def storm(self, seed: int, seconds: float) -> None:
        self.it.flow(seconds, Random(seed))

    @rule(seconds=st.sampled_from((0.05, 0.3, 1.1, 6.0)))
    def calm(self, seconds: float) -> None:
        """Time passes, and not one message arrives."""
        self.it.pass_s(seconds)

    @rule(number=NUMBER)
    def leave(self, number: int) -> None:
        self.it.leave(number)

    @rule(number=NUMBER, fate=st.sampled_from(("deliver", "deliver", "deliver", "delay", "lose", "repeat")))
    def message(self, number: int, fate: str) -> None:
        """Of one channel, the next one; where that cannot be lost it arrives."""
        network = self.it.network
        channels = network.busy if fate == "deliver" else network.lossy
        if channels:
            getattr(network, fate)(channels[number % len(channels)])
            self.it.settle()

    @rule(number=NUMBER)
    def step(self, number: int) -> None:
        """Half a step of one worker."""
        if workers := [worker for worker in self.it.workers if worker.is_runnable]:
            self.it.step(workers[number % len(workers)])
            self.it.settle()

    @rule(number=NUMBER)
    def kill(self, number: int) -> None:
        if processes := self.it.processes:
            self.it.kill(processes[number % len(processes)])
            self.it.settle()

    @rule(number=NUMBER)
    def freeze(self, number: int) -> None:
        if processes := [process for process in self.it.processes if not process.is_frozen]:
            processes[number % len(processes)].is_frozen = True

    @rule(number=NUMBER)
    def thaw(self, number: int) -> None:
        """A worker's thread may come first, and take a step before anything that arrived meanwhile is read."""
        if frozen := [process for process in self.it.processes if process.is_frozen]:
            process = frozen[number % len(frozen)]
            process.is_frozen = False
            if isinstance(process, Worker):
                process.step_blindly()
            self.it.settle()

    @rule(number=NUMBER)
    def cut(self, number: int) -> None:
        self.it.cut(number)

    @rule(number=NUMBER)
    def hold(self, number: int) -> None:
        """A way is blocked: to the host agent, on a link, or to and from a process."""
        network = self.it.network
        names = ["host.host", *(name for channel in network.busy for name in channel)]
        network.held.add(names[number % len(names)])

    @rule()
    def release(self) -> None:
        self.it.network.held.clear()

    @rule()
    def restart(self) -> None:
        self.it.restart()

    @rule()
    def stand_in(self) -> None:
        """Another scheduler takes the cell, though the one before may live."""
        if len(self.it.schedulers) < SCHEDULERS_MAX:
            self.it.start_scheduler()
            self.it.settle()

    @invariant()
    def holds(self) -> None:
        if self.world is not None:
            check(self.world)

    def teardown(self) -> None:
        if self.world is not None:
            try:
                finish(self.world)
            finally:
                self.world.close()

    @property
    def it(self) -> World:
        assert self.world is not None
        return self.world


def finish(world: World) -> None:
    """Heal everything: in the end nothing is left, and everybody has what they asked for."""
    world.heal()
    end_s = world.now_s + HEALING_S
    while leftovers(world) and world.now_s < end_s:
        world.flow(1.0)
        world.restart()
        check(world)
    assert not leftovers(world), leftovers(world)


NIGHTLY = "nightly"

TestProtocol = Protocol.TestCase
TestProtocol.settings = settings.get_profile(NIGHTLY if settings.get_current_profile_name() == NIGHTLY else "model")
