"""The memory model with what shares and moves blocks beside prefixes: forks of one prompt, and the host tier."""

from typing import Any, cast

from libs.contracts.messages import Swap
from services.scheduler import forking, parting, swapping, tables
from services.scheduler.choice import Choice
from services.scheduler.eviction import Caching
from services.scheduler.worker_book import WorkerBook
from tests.model.contents import Contents
from tests.model.memory import CHOICES_MAX, MemoryModel

HOST_BLOCKS = 6


class BranchingModel(MemoryModel):
    def __init__(self, blocks: int, caching: Caching) -> None:
        super().__init__(blocks, caching, HOST_BLOCKS)
        self.host = Contents(HOST_BLOCKS)

    # Moves

    def arrive_in_two(self, number: int) -> None:
        """A request whose choices part at their first token: the older one waits for it."""
        if len(self.state.choices) + 2 > CHOICES_MAX:
            return
        leader = self._added(number)
        handle = self.state.next_handle()
        fork = Choice(handle, leader.sequence, "", list(leader.ids), leader.params, 0.0, 1)
        self.state.choices[handle] = fork
        fork.leader, leader.forks = leader, (fork,)
        self._start(leader, number)

    def swap_out(self, number: int) -> None:
        """It is preempted; its worker copies what is committed into the host tier, or may do so too late."""
        if not self.running:
            return
        choice = self.running[number % len(self.running)]
        self._copy(choice)
        self._leaves(choice)
        swaps: list[Swap] = []
        if not swapping.begin_out(self.memory, choice, cast(WorkerBook, _Orders(swaps))):
            return
        choice.leaving = True
        self.check()
        [swap] = swaps
        committed = max(0, self.memory.blocks_for(choice.cursor) - (len(choice.table) - len(swap.blocks)))
        worker, is_begun = choice.worker, bool(number // 16 % 4)
        if is_begun:
            for block, host_block in zip(swap.blocks[:committed], swap.host_blocks, strict=False):
                self.host.blocks[host_block] = list(self.contents.blocks[block])
            swapping.note_out(choice, committed)
        self._take_off(choice, is_reported=True, is_begun=is_begun)
        if not is_begun:
            self.host.let_haunt(worker, self.versions[worker], swap.host_blocks, 0)
        choice.leaving = False
        if swapping.may_rest(self.memory, choice):
            self._wake(swapping.rest(self.memory, choice))
        else:
            self._wake(tables.release(self.memory, choice))
        self.waiting.append(choice)

    def bury(self, number: int) -> None:
        lives = set(self.versions)
        super().bury(number)
        for worker in lives - set(self.versions):
            self.host.gone(worker)

    # What they change in others

    def finish(self) -> None:
        super().finish()
        tier = self.memory.tier
        assert tier.available_blocks == tier.pool.total_blocks, "a block of the host tier is left"

    def _take(self, worker: str) -> None:
        super()._take(worker)
        self.host.begun(worker, self.versions[worker])

    def _needed(self, choice: Choice) -> int:
        """With what its forks need at once; where that is too much they go on by themselves."""
        needed = super()._needed(choice)
        if choice.forks:
            own = forking.own_blocks(self.memory, choice)
            if needed + own + 2 <= self.memory.pool.total_blocks and not choice.generated:
                return needed + own
            self._scatter(choice)
        return needed

    def _joined(self, choice: Choice) -> None:
        if choice.forks:
            forking.deal(self.memory, choice)

    def _drew(self, choice: Choice) -> None:
        """All choices have their first token: they part."""
        if choice.generated > 1:
            return
        for number, fork in enumerate(forking.take_forks(choice)):
            parting.take_stake(self.memory, choice, fork)
            fork.ids.append(7 + number)
            fork.worker, fork.joined_tokens = choice.worker, len(fork.ids)
            self.running.append(fork)

    def _leaves(self, choice: Choice) -> None:
        self._scatter(choice)

    def _drop(self, choice: Choice) -> None:
        self._scatter(choice)
        forking.drop(choice)
        super()._drop(choice)

    def _check_own(self, choice: Choice, block: int, slot: int) -> None:
        """Its forks may hold it too, and somebody may copy what is before the slot."""
        for other in self.state.choices.values():
            assert other is choice or block not in other.table, "somebody else uses a block that is written"
            assert block not in other.stake or other.leader is choice, "a stake in what somebody else writes"
            for copy in other.copies:
                assert copy.source != block or copy.tokens <= slot, "somebody copies what is written"

    def _copy(self, choice: Choice) -> None:
        """What is brought back is there before anything is written, and reported with the first step."""
        swapped = choice.swapped
        if swapped is not None:
            self.host.haunt()
            for block, host_block in zip(choice.table[swapped.first :], swapped.host_blocks, strict=False):
                self.contents.blocks[block] = list(self.host.blocks[host_block])
            self._wake(swapping.come_back(self.memory, choice))
        super()._copy(choice)

    def _scatter(self, leader: Choice) -> None:
        for fork in forking.take_forks(leader):
            forking.give_up_stake(self.memory, fork)
            self.waiting.append(fork)


class _Orders:
    """Of a worker, that the model carries out itself."""

    def __init__(self, swaps: list[Swap]) -> None:
        self._swaps = swaps

    def swap_out(self, swap: Swap, *_: Any) -> None:
        self._swaps.append(swap)
