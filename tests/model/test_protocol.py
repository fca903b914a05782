"""The protocol under all that may happen: processes crash, freeze and thaw; messages get lost, late or doubled."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.checks import check, finish
from tests.model.world import World

FAULTS = ("kill_one", "strike", "strike", "freeze", "stun", "haunt", "haunt", "cut", "hold", "hold_host", "stand_in")
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

    @rule(seconds=st.sampled_from((0.02, 0.06, 0.1, 0.3, 1.0)))
    def flow(self, seconds: float) -> None:
        self.it.flow(seconds)

    @rule(seconds=st.sampled_from((0.02, 0.06, 0.1, 2.0)))
    def flow_on(self, seconds: float) -> None:
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

    @rule(fault=st.sampled_from(FAULTS), number=NUMBER)
    def fault(self, fault: str, number: int) -> None:
        getattr(self.it, fault)(number)
        self.it.settle()

    @rule(cure=st.sampled_from(("thaw", "restart", "release")), number=NUMBER)
    def mend(self, cure: str, number: int) -> None:
        getattr(self.it, cure)(number)
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


NIGHTLY = "nightly"

TestProtocol = Protocol.TestCase
TestProtocol.settings = settings.get_profile(NIGHTLY if settings.get_current_profile_name() == NIGHTLY else "model")
