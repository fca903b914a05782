"""Blocks under any order of what may become of them: shared, copied, given back, evicted, taken from a lost worker."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.scheduler.eviction import Caching
from tests.model.branching import BranchingModel

NUMBER = st.integers(0, 1 << 12)
OFTEN = {"arrive": 3, "start": 3, "write": 8, "grant": 2, "end": 2, "begin": 4, "bury": 2}
MOVES = [move for move, times in OFTEN.items() for _ in range(times)]
MOVES += ["evict", "preempt", "move", "lose", "give_up", "arrive_in_two", "arrive_in_two", "swap_out", "swap_out"]


class Blocks(RuleBasedStateMachine):
    """No block is both free and used, counts are what tables hold, nobody reads or writes another's, nothing leaks."""

    def __init__(self) -> None:
        super().__init__()
        self.model: BranchingModel | None = None

    @initialize(blocks=st.sampled_from((8, 14, 30, 80)), floor=st.sampled_from((0.0, 0.2, 0.5)))
    def open(self, blocks: int, floor: float) -> None:
        self.model = BranchingModel(blocks, Caching(floor_share=floor, ceiling_share=0.5))

    @rule(move=st.sampled_from(MOVES), number=NUMBER)
    def do(self, move: str, number: int) -> None:
        getattr(self.model, move)(number)

    @invariant()
    def holds(self) -> None:
        if self.model is not None:
            self.model.check()

    def teardown(self) -> None:
        if self.model is not None:
            self.model.finish()


NIGHTLY = "nightly"
EXAMPLES = 3_400  # of 60 steps: 204,000

TestBlocks = Blocks.TestCase
if settings.get_current_profile_name() == NIGHTLY:
    TestBlocks.settings = settings(settings.get_profile(NIGHTLY), max_examples=EXAMPLES)
else:
    TestBlocks.settings = settings.get_profile("model")
