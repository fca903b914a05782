"""What clients of the model ask for, and what they must get, whatever happens on the way."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from libs.contracts.errors import HeadraceError
from libs.contracts.messages import Prompt, SamplingParams
from services.gateway.hub import Hub
from services.gateway.metrics import Metrics
from services.gateway.notes import Note, notes_of
from services.gateway.observe import Observer
from services.gateway.reading import Reading
from services.gateway.stream import ClientGone, Stream
from services.gateway.validate import Kind, ValidRequest
from services.gateway.wire import Ticket
from tests.fakes.engine import VOCAB_SIZE, best_of_beams, expected, scores_of

MODEL, CELL = "m", "c0"
TIMEOUT_S = 3600.0
LENGTHS = (5, 16, 31, 32, 33, 48, 90)  # around the ends of blocks
FIRST_IDS = (100, 500)  # decide which prompts share prefixes
SAMPLINGS = (
    SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True),
    SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True),
    SamplingParams(temperature=0.7, seed=6, max_tokens=100, ignore_eos=True),
    SamplingParams(temperature=0.7, seed=3, max_tokens=9, ignore_eos=True),
    SamplingParams(temperature=0.7, seed=4, max_tokens=40),
    SamplingParams(temperature=0.0, max_tokens=40, min_tokens=4, stop_token_ids=tuple(range(0, VOCAB_SIZE, 16))),
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=2, prompt_logprobs=1),
    SamplingParams(max_tokens=14, beam_width=3, length_penalty=0.5),
)
STOP_PLACES = (None, None, 0, 3, 17)  # which token of the answer its stop string is, if it has one


class Words:
    """Each token is a word of its own."""

    vocab_size = VOCAB_SIZE

    def token_bytes(self, token_id: int) -> bytes:
        return f"{token_id:04d} ".encode()

    def is_special(self, token_id: int) -> bool:
        return False


CHOICES = (1, 1, 1, 2, 3)


@dataclass(slots=True)
class Answer:
    """One choice of a request: what its client must get, and what it got so far."""

    undisturbed: tuple[int, ...]  # without its stop string
    ids: tuple[int, ...]
    reason: str
    got: list[int] = field(default_factory=list)
    got_reason: str = ""
    notes: list[Note | None] = field(default_factory=list)  # of what it got

    @property
    def is_right(self) -> bool:
        return (tuple(self.got), self.got_reason) == (self.ids, self.reason)


@dataclass(slots=True)
class Call:
    """One client's request."""

    request_id: str
    gateway: str
    prompt: tuple[int, ...]
    params: SamplingParams
    stops: tuple[str, ...]
    answers: tuple[Answer, ...]
    outcome: str = ""  # "done", "gone", or the code of an error; "" while it waits

    @property
    def is_untouched(self) -> bool:
        return not any(answer.got for answer in self.answers)


class Demand:
    """Numbers calls, so that a drawn number is all a test has to say."""

    def __init__(self, limit_tokens: int) -> None:
        """No sequence may be longer."""
        self._numbers, self._limit_tokens = count(1), limit_tokens

    def call(self, gateway: str, choice: int) -> Call:
        choice, length = divmod(choice, len(LENGTHS))
        choice, first = divmod(choice, len(FIRST_IDS))
        choice, sampling = divmod(choice, len(SAMPLINGS))
        choice, stop = divmod(choice, len(STOP_PLACES))
        place, choices = STOP_PLACES[stop], CHOICES[choice % len(CHOICES)]
        prompt = tuple(FIRST_IDS[first] + index % 300 for index in range(LENGTHS[length]))
        params = SAMPLINGS[sampling]
        room = min(params.max_tokens, self._limit_tokens - len(prompt))
        undisturbed = _undisturbed(prompt, replace(params, max_tokens=room), choices)
        answers = [Answer(ids, ids, reason) for ids, reason in undisturbed]
        stops: tuple[str, ...] = ()
        ids = answers[0].ids
        if place is not None and not params.beam_width and params.min_tokens <= place < len(ids) - 1:
            stops = (Words().token_bytes(ids[place]).decode(),)
            answers = [_stopped(answer, params.min_tokens, ids[place]) for answer in answers]
        return Call(f"cmpl-{next(self._numbers)}", gateway, prompt, params, stops, tuple(answers))


def _undisturbed(prompt: tuple[int, ...], params: SamplingParams, choices: int) -> list[tuple[tuple[int, ...], str]]:
    if params.beam_width:
        return best_of_beams(prompt, params, choices)
    return [expected(prompt, params, choice) for choice in range(choices)]


def _stopped(answer: Answer, min_tokens: int, stop: int) -> Answer:
    """As it ends where its text has this token; one that ends an answer by itself has no text."""
    shown = answer.ids[:-1] if answer.reason == "stop" else answer.ids
    first = max(min_tokens - 1, 0)
    if stop not in shown[first:]:
        return answer
    return Answer(answer.undisturbed, answer.ids[: answer.ids.index(stop, first) + 1], "stop")


def stream_of(call: Call, metrics: Metrics, now_s: float) -> Stream:
    request = ValidRequest(
        kind=Kind.COMPLETION,
        model=MODEL,
        prompt=Prompt(ids=call.prompt, kind="ids"),
        params=call.params,
        reading=Reading(call.params.max_tokens, call.params.min_tokens, call.stops, is_noted=call.params.logprobs >= 0),
        choices=len(call.answers),
        stream=True,
        include_usage=False,
        continuous_usage=False,
        return_token_ids=False,
    )
    ticket = Ticket(call.request_id, call.gateway, now_s + TIMEOUT_S, int((now_s + TIMEOUT_S) * 1000))
    return Stream(ticket, request, Words(), Observer(call.request_id, request, metrics, now_s))


def check_notes(call: Call, stream: Stream) -> None:
    """Each token has the log-probabilities that go with it, and so has the prompt, where they are asked for."""
    for answer in call.answers:
        assert len(answer.notes) == (len(answer.got) if call.params.logprobs >= 0 else 0)
        assert all(note is not None and len(note.top_ids) == call.params.logprobs for note in answer.notes)
    if stream.scoring is not None:
        scores = scores_of(array("I", call.prompt), 1, call.prompt[1:], call.params.prompt_logprobs)
        assert stream.scoring.notes == notes_of(scores.logprobs, scores.top_ids, scores.top_logprobs, scores.ranks)


async def serve(call: Call, stream: Stream, hub: Hub) -> None:
    """What the gateway's endpoint does with a stream, without HTTP."""
    try:
        await hub.send(stream)
        async for delta in stream.deltas():
            answer = call.answers[delta.index]
            answer.got += delta.token_ids
            answer.got_reason = delta.finish_reason or ""
            answer.notes += delta.notes
        check_notes(call, stream)
        call.outcome = "done"
    except ClientGone:
        call.outcome = "gone"
    except HeadraceError as error:
        call.outcome = error.code
    finally:
        hub.abandon(stream, ClientGone())


def open_calls(calls: dict[str, Call]) -> Iterator[Call]:
    return (call for call in calls.values() if not call.outcome)
