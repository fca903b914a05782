"""Fair share, priority and deadlines under drawn load: everybody ends, and nobody is served too far beyond another."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from libs.contracts.messages import Failed
from services.scheduler.choice import Phase
from services.scheduler.order import WaitQueue
from services.scheduler.reasons import Reason
from services.scheduler.share import INPUT_WEIGHT, OUTPUT_WEIGHT
from services.scheduler.state import DECODE, PREFILL
from tests.unit.scheduler.cell import GATEWAY, Cell, params, prompt

TENANTS = ("a", "b", "c")
PRIORITIES = (0, 0, 0, -1)
LONGEST_PROMPT, LONGEST_ANSWER = 40, 12  # tokens
MAX_RUNNING = 3
LEAD_TOKENS = 32
CHUNK_TOKENS = 16
CROWD = 12

# Theorem 4.4 of Sheng et al., OSDI 2024. All that a tenant's admitted requests may still be served when another's turn
# comes is what they have not generated: with MAX_RUNNING of them that is the paper's "tokens in a batch".
BOUND = 2 * max(INPUT_WEIGHT * LONGEST_PROMPT, OUTPUT_WEIGHT * MAX_RUNNING * LONGEST_ANSWER)
BOUND_WITH_DEADLINES = BOUND + 2 * LEAD_TOKENS

Served = dict[tuple[int, str], int]


class FairShare(RuleBasedStateMachine):
    """A cell with a fake engine; each rule is an event or the step of a worker."""

    @initialize(blocks=st.sampled_from((16, 64)), role=st.sampled_from(("hybrid", "disaggregated")))
    def begin(self, blocks: int, role: str) -> None:
        self.cell = Cell(blocks=blocks, max_running=MAX_RUNNING, role=role, max_chunk_tokens=CHUNK_TOKENS)
        self.cell.state.queue = WaitQueue(lead_tokens=LEAD_TOKENS)
        for name in (PREFILL, DECODE) if role == "disaggregated" else (DECODE,):
            self.cell.add_worker(name, name)
        self.submitted: list[str] = []
        self.has_deadlines = False
        self.since: dict[tuple[int, str, str], int] = {}  # class and two tenants → what one had more as both waited

    @rule(
        tenant=st.sampled_from(TENANTS),
        priority=st.sampled_from(PRIORITIES),
        prompt_tokens=st.integers(1, LONGEST_PROMPT),
        answer_tokens=st.integers(1, LONGEST_ANSWER),
        timeout_s=st.one_of(st.none(), st.none(), st.integers(1, 60)),
        times=st.integers(1, 5),
    )
    def submit(
        self, tenant: str, priority: int, prompt_tokens: int, answer_tokens: int, timeout_s: int | None, times: int
    ) -> None:
        """Prompts share prefixes, within a tenant. Where many wait already, nobody comes."""
        if len(self.cell.state.queue) > CROWD:
            return
        self.has_deadlines |= timeout_s is not None
        for _ in range(times):
            request_id = f"r{len(self.submitted)}"
            self.submitted.append(request_id)
            self.cell.submit(
                request_id,
                prompt(prompt_tokens, first=100 + len(self.submitted) % 3),
                params(answer_tokens),
                tenant=tenant,
                priority=priority,
                is_timed=timeout_s is not None,
                deadline_s=timeout_s or 3600.0,
            )
            self.compare()

    @rule(steps=st.integers(1, 6), step_s=st.sampled_from((0.02, 0.02, 0.5)))
    def work(self, steps: int, step_s: float = 0.02) -> None:
        for _ in range(steps):
            self.cell.now_s += step_s
            self.cell.alive(GATEWAY)
            self.compare()
            for worker in list(self.cell.workers.values()):
                for message in worker.boundary():
                    self.cell.turn(message)
                    self.compare()

    @rule(number=st.integers(0, 1 << 16))
    @precondition(lambda self: self.cell.state.requests)
    def leave(self, number: int) -> None:
        """Few do, so that there is a crowd."""
        requests = sorted(self.cell.state.requests)
        if number % 4 == 0:
            self.cell.cancel(requests[number % len(requests)])
            self.compare()

    @invariant()
    def delivered(self) -> None:
        """Gateways take what has ended."""
        for request_id, group in list(self.cell.state.requests.items()):
            if all(choice.phase is Phase.ENDED for choice in group.choices):
                self.cell.deliver(request_id)
            elif group.is_failed:
                assert group.leader.reason in (Reason.FAILED, Reason.DEADLINE, Reason.SHED)
                self.cell.answer(request_id, live=True)

    def compare(self) -> None:
        """For each two tenants of a class that have waited since the same moment: how far apart they were served.

        One whose waiting choices are all parked, or that has its part of the cell, waits for no turn.
        """
        served = self._waiting()
        since: dict[tuple[int, str, str], int] = {}
        for (priority, one), tokens in served.items():
            for (other_priority, other), other_tokens in served.items():
                if priority == other_priority and one < other:
                    pair = (priority, one, other)
                    since[pair] = self.since.get(pair, tokens - other_tokens)
                    apart = abs(tokens - other_tokens - since[pair])
                    assert apart <= (BOUND_WITH_DEADLINES if self.has_deadlines else BOUND), (pair, apart)
        self.since = since

    def _waiting(self) -> Served:
        state = self.cell.state
        waiting = [c for c in state.choices.values() if c in state.queue and c.handle not in state.queue.parked]
        fresh = [choice for choice in waiting if not (choice.was_admitted or choice.share.is_held)]
        return {(choice.sequence.priority, choice.share.tenant): choice.share.served for choice in fresh}

    def teardown(self) -> None:
        """Everybody ends: by its tokens, or by its deadline."""
        if not hasattr(self, "cell"):
            return
        self._run(lambda: self.cell.is_clean and not self.cell.state.requests)
        failed = {told.request_id for told in self.cell.told if isinstance(told, Failed)}
        assert self.has_deadlines or not failed

    def _run(self, is_over: Callable[[], bool]) -> None:
        for _ in range(100 * (1 + len(self.submitted))):
            self.delivered()
            if is_over():
                return
            self.work(1)
        raise AssertionError({r: group.leader.reason for r, group in self.cell.state.requests.items()})


NIGHTLY = "nightly"
NIGHTLY_EXAMPLES = 3_400  # times 60 steps

TestFairShare = FairShare.TestCase
TestFairShare.settings = (
    settings(settings.get_profile(NIGHTLY), max_examples=NIGHTLY_EXAMPLES)
    if settings.get_current_profile_name() == NIGHTLY
    else settings.get_profile("model")
)
