"""A cell whose links are slow and whose moves are drawn: what any order of events must leave true is checked here."""

from collections import deque

from libs.contracts.messages import Alive, BadWord, Delta, Gone, SamplingParams, TokenBias
from services.scheduler.choice import Phase
from services.scheduler.events import LinkClosed, Send
from services.scheduler.state import DECODE, PREFILL, State
from services.scheduler.swap_cost import COST
from tests.fakes.engine import best_of_beams, expected
from tests.fakes.worker import FakeWorker, Word
from tests.unit.scheduler.cell import GATEWAY, Cell, params, prompt
from tests.unit.scheduler.scored import check_scores

# Lengths around block ends; the two first ids decide which prompts share prefixes.
PROMPTS = tuple(prompt(tokens, first) for first in (100, 500) for tokens in (5, 16, 31, 32, 33, 48, 90))
SAMPLINGS = (
    params(1),
    params(9),
    params(40, ignore_eos=False),
    params(6, logprobs=2, prompt_logprobs=1),
    params(20, repetition_penalty=1.2, logit_bias=(TokenBias(7, -3.0),)),
    params(9, allowed_token_ids=(2, 9, 40), bad_words=(BadWord((9,)), BadWord((40, 40)), BadWord((40, 2)))),
    params(20, temperature=1.0, seed=7),
    params(40, temperature=1.0, seed=(1 << 64) - 1, ignore_eos=False),
    params(12, beam_width=3),
    params(20, beam_width=4, ignore_eos=False, stop_token_ids=tuple(range(100, 500))),
)
CHOICES_MAX = 3
REQUESTS_MAX = 24
WORKERS_MAX = 5


class Chaos(Cell):
    """Each move takes a number that chooses among what is possible; a move that is impossible does nothing."""

    def __init__(
        self,
        *,
        blocks: int,
        role: str,
        prefillers: int,
        decoders: int,
        step_s: float,
        swaps: tuple[int, str] = (0, COST),
    ) -> None:
        """`swaps`: blocks of the host tier, and how who has to give way does."""
        host_blocks, preemption = swaps
        super().__init__(
            blocks=blocks,
            role=role,
            max_chunk_tokens=32,
            max_running=6,
            host_blocks=host_blocks,
            preemption=preemption,
        )
        self.down: dict[str, deque[Send]] = {}
        self.up: dict[str, deque[Word]] = {}
        self.submitted: dict[str, tuple[tuple[int, ...], SamplingParams, int]] = {}
        self.stopped: dict[tuple[str, int], int] = {}  # by request and choice
        self.frozen: set[str] = set()
        self.deaf: set[str] = set()  # frozen since before this term: not attached to it yet
        self.gateway_answers = False
        self.lives = 0
        self.step_s = step_s
        self.roles = [PREFILL] * prefillers + [DECODE] * decoders
        for role in self.roles:
            self.start(role)

    # Moves

    def start(self, role: str) -> FakeWorker:
        self.lives += 1
        worker = FakeWorker(f"{role}-{self.lives}", role, self.pool, tier=self.tier)
        worker.step_s = self.step_s
        self.workers[worker.incarnation] = worker
        self.link(worker)
        return worker

    def link(self, worker: FakeWorker) -> None:
        worker.on_frame = self.gateway.frame
        self.down[worker.incarnation], self.up[worker.incarnation] = deque(), deque(worker.attach())

    def request(self, number: int) -> None:
        if len(self.submitted) < REQUESTS_MAX:
            request_id = f"r{len(self.submitted)}"
            ids, sampling = PROMPTS[number % len(PROMPTS)], SAMPLINGS[number // len(PROMPTS) % len(SAMPLINGS)]
            choices = 1 + number // 7 % CHOICES_MAX
            self.submitted[request_id] = (ids, sampling, choices)
            self.submit(request_id, ids, sampling, choices=choices)

    def again(self, number: int) -> None:
        """The queue delivers a sequence that is held already."""
        if self.state.requests:
            request_id = sorted(self.state.requests)[number % len(self.state.requests)]
            ids, sampling, choices = self.submitted[request_id]
            self.submit(request_id, ids, sampling, choices=choices)

    def work(self, number: int) -> None:
        """One that was given up may have thawed: fenced at its gateways, it writes what nobody may read."""
        worker = self._worker(number)
        if worker.incarnation not in self.frozen:
            book = self.state.workers.get(worker.incarnation)
            is_given_up = any(kill.incarnation == worker.incarnation for kill in self.killed)
            is_obeyed = book is not None and not book.is_lost
            worker.garbles = self.gateway.is_fenced if is_given_up and not is_obeyed else lambda resident: False
            self.up[worker.incarnation].extend(worker.boundary())

    def hear(self, number: int) -> None:
        """One message of a worker arrives."""
        up = self.up[self._worker(number).incarnation]
        if up:
            self.turn(up.popleft())

    def obey(self, number: int) -> None:
        """One order arrives at its worker."""
        worker = self._worker(number)
        if self.down[worker.incarnation]:
            worker.receive(self.down[worker.incarnation].popleft().message)

    def drop_order(self, number: int) -> None:
        """The worker cannot use an order: it will ask for a Snapshot."""
        down = self.down[self._worker(number).incarnation]
        if len(down) > 1 and all(isinstance(send.message, Delta) for send in (down[0], down[1])):
            down.popleft()

    def relink(self, number: int) -> None:
        """The link breaks, with all that was on it, and is back at once."""
        worker = self._worker(number)
        worker.detach()
        self.turn(LinkClosed(worker.incarnation))
        self.link(worker)

    def kill(self, number: int) -> None:
        """A worker's link closes and stays closed. One that nobody has heard of yet dials again."""
        worker = self._worker(number)
        if worker.incarnation not in self.state.workers:
            self.relink(number)
            return
        worker.detach()
        self.up[worker.incarnation].clear()
        self.turn(LinkClosed(worker.incarnation))
        self.pass_while_alive(1.0)

    def freeze(self, number: int) -> None:
        """It does nothing until it thaws; whoever has something to do and does not report it is given up in time."""
        self.frozen.add(self._worker(number).incarnation)

    def thaw(self, number: int) -> None:
        worker = self._worker(number)
        self.frozen.discard(worker.incarnation)
        if worker.incarnation in self.deaf:
            self.deaf.discard(worker.incarnation)
            self.link(worker)

    def succeed(self, number: int) -> None:
        """Another scheduler takes over. It knows nothing but what the queue, the gateways and the workers tell."""
        self.state = State(self.policy, self.state.term + 1)
        self.asks.clear()
        for worker in self.workers.values():
            worker.detach()
            if worker.incarnation in self.frozen:
                self.up[worker.incarnation].clear()
                self.down[worker.incarnation].clear()
                self.deaf.add(worker.incarnation)
            else:
                self.link(worker)
        left = [request_id for request_id in self.submitted if request_id not in self.acked]
        for request_id in left[number % 2 :] + left[: number % 2]:
            if request_id in self.gateway.held:
                ids, sampling, choices = self.submitted[request_id]
                self.turn(self.arrival(request_id, ids, sampling, choices=choices, is_older=True))

    def lapse(self, number: int) -> None:
        self.pass_while_alive((0.5, 1.0, 5.0)[number % 3])

    def bury(self, number: int) -> None:
        """A host ends one that was given up, and starts another life."""
        if self.killed:
            incarnation = self.killed.pop(number % len(self.killed)).incarnation
            if incarnation not in self.workers:
                self.turn(Gone(incarnation))
                return
            role = self.workers.pop(incarnation).identity.role
            del self.up[incarnation], self.down[incarnation]
            self.frozen.discard(incarnation)
            self.deaf.discard(incarnation)
            self.turn(Gone(incarnation))
            self.start(role)

    def haunt(self, number: int) -> None:
        """One freezes until it is given up, another takes over, and then both step side by side."""
        frozen = self._worker(number)
        self.turn(*self.up[frozen.incarnation])
        self.up[frozen.incarnation].clear()
        self.kill(number)
        if len(self.workers) < WORKERS_MAX:
            self.start(DECODE)
        while self.asks:
            self.reply(0)
        for index in range(len(self.workers) * (2 + number % 12)):
            for move in (Chaos.obey, Chaos.hear, Chaos.work, Chaos.hear, Chaos.obey):
                move(self, index)

    def reply(self, number: int) -> None:
        """A gateway answers one question."""
        if self.asks:
            self.answer_ask(number % len(self.asks))

    def drop(self, number: int) -> None:
        if self.state.requests:
            self.cancel(sorted(self.state.requests)[number % len(self.state.requests)])

    def stop(self, number: int) -> None:
        """The gateway finds a stop string in what was delivered to it."""
        running = [
            (request_id, index, len(held.ids) - 1)
            for request_id, choices in self.gateway.choices.items()
            for index, held in enumerate(choices)
            if held.ids and not held.end and request_id in self.state.requests
        ]
        if running:
            request_id, index, position = running[number % len(running)]
            self.stop_at(request_id, position, index)
            if self.choice(request_id).phase is not Phase.FAILED:
                self.gateway.stop(request_id, position, index)
                self.stopped[request_id, index] = min(position, self.stopped.get((request_id, index), position))

    def deliver_one(self, number: int) -> None:
        ended = [
            group
            for group in self.state.requests.values()
            if all(choice.phase is Phase.ENDED for choice in group.choices)
        ]
        if ended:
            self.check(ended[number % len(ended)].request_id)

    # Ends

    def check(self, request_id: str) -> None:
        """An ended request has exactly the tokens it must have, and is then delivered."""
        prompt_ids, sampling, choices = self.submitted[request_id]
        best = best_of_beams(prompt_ids, sampling, choices) if sampling.beam_width else ()
        for choice in range(choices):
            self._check(request_id, choice, (best[choice] if best else expected(prompt_ids, sampling, choice))[0])
        check_scores(self.state.requests[request_id], prompt_ids, sampling)
        self.deliver(request_id)

    def _check(self, request_id: str, choice: int, ids: tuple[int, ...]) -> None:
        stopped = self.stopped.get((request_id, choice))
        if stopped is not None:
            ids = ids[: stopped + 1]
        log = self.log(request_id, choice)
        self.gateway.repair(request_id, choice)
        assert log == ids or (stopped is not None and log == ids[: len(log)]), (request_id, choice)
        assert tuple(self.gateway.choices[request_id][choice].ids) == ids, (request_id, choice)

    def finish(self) -> None:
        """Let everything come to its end."""
        self._settle()
        moving = True
        while moving:
            moving = False
            for worker in list(self.workers.values()):
                down, up = self.down[worker.incarnation], self.up[worker.incarnation]
                while down:
                    worker.receive(down.popleft().message)
                up.extend(worker.boundary())
                moving = moving or bool(up)
                while up:
                    self.turn(up.popleft())
            self.turn(Alive(GATEWAY))
        for request_id, group in list(self.state.requests.items()):
            if group.is_failed:
                self.answer(request_id, live=True)
            else:
                phases = [(choice.phase, choice.reason) for choice in group.choices]
                assert all(phase is Phase.ENDED for phase, _ in phases), (request_id, phases)
                self.check(request_id)

    def _settle(self) -> None:
        """All thaw, those that were given up are ended, the term opens."""
        for index in range(len(self.workers)):
            self.thaw(index)
        while self.killed or self.asks or not self.state.is_open:
            self.bury(0)
            self.reply(0)
            for up in list(self.up.values()):
                while up:
                    self.turn(up.popleft())
            if not self.state.is_open:
                self.pass_while_alive(0.5)

    def _worker(self, number: int) -> FakeWorker:
        workers = list(self.workers.values())
        return workers[number % len(workers)]

    def _send(self, send: Send) -> None:
        if send.incarnation in self.down:
            self.down[send.incarnation].append(send)
