"""What the streams of a request tell as messages of the gRPC door; no I/O."""

from collections.abc import Sequence

from libs.contracts.messages import GenerateChunk, GeneratedText, GenerateResponse, PromptTokens, TokenUsage
from services.gateway.batch import numbered, usage_of
from services.gateway.notes import Note
from services.gateway.respond import echoed_text
from services.gateway.shapes import Delta
from services.gateway.stream import Stream


def response(streams: Sequence[Stream], choices: Sequence[Sequence[Delta]]) -> GenerateResponse:
    """`choices` are those of each stream, whole."""
    texts = [
        _text(numbered(streams, stream, delta), echoed_text(stream))
        for stream, deltas in zip(streams, choices, strict=True)
        for delta in deltas
    ]
    prompts = tuple(prompt for prompt in map(_prompt, streams) if prompt is not None)
    return GenerateResponse(streams[0].request_id, tuple(texts), _usage(streams), prompts)


class Chunks:
    """Of one response: a delta after the other, and with the first ones what is told of the prompts."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams
        self._begun_prompts, self._begun_choices = set[str](), set[int]()

    def has_begun(self, stream: Stream) -> bool:
        return stream.request_id in self._begun_prompts

    def next(self, stream: Stream, delta: Delta) -> GenerateChunk:
        delta = numbered(self._streams, stream, delta)
        prompt = None if self.has_begun(stream) else _prompt(stream)
        echo = "" if delta.index in self._begun_choices else echoed_text(stream)
        self._begun_prompts.add(stream.request_id)
        self._begun_choices.add(delta.index)
        return GenerateChunk(self._streams[0].request_id, _text(delta, echo), _usage(self._streams), prompt)


def _text(delta: Delta, echo: str) -> GeneratedText:
    notes = [note for note in delta.notes if note is not None]
    logprobs = tuple(note.logprob for note in notes)
    text, reason = echo + delta.text, delta.finish_reason or ""
    return GeneratedText(delta.index, text, tuple(delta.token_ids), reason, logprobs, *_tops(notes))


def _prompt(stream: Stream) -> PromptTokens | None:
    """Known from the first delta on; None where nobody asked."""
    if not stream.request.wants_prompt_ids:
        return None
    notes = stream.scoring.notes if stream.scoring is not None else []
    logprobs, ranks = tuple(note.logprob for note in notes), tuple(note.rank for note in notes)
    return PromptTokens(stream.prompt_ids, logprobs, ranks, *_tops(notes))


def _tops(notes: Sequence[Note]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Ids and log-probabilities of the likeliest, those of one note after the other."""
    ids = tuple(token_id for note in notes for token_id in note.top_ids)
    return ids, tuple(logprob for note in notes for logprob in note.top_logprobs)


def _usage(streams: Sequence[Stream]) -> TokenUsage:
    usage = usage_of(streams)
    return TokenUsage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
