"""Streamed = not streamed, over the real vocabulary: whatever the tokens, the frames and the stop strings are."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.models import cache_root
from libs.engine.gguf_convert import ensure_default_model
from libs.text.tokenizer import Tokenizer
from services.gateway.choice import Choice
from services.gateway.notes import Note, TokenNames
from services.gateway.reading import Reading
from services.gateway.respond import joined
from services.gateway.shapes import ChunkWriter, Delta, Head, Source, Usage, whole
from services.gateway.validate import Kind
from tests.unit.gateway.asgi import events, text_of

USAGE = Usage(1, 1, 0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_dir(ensure_default_model(cache_root()))


@st.composite
def reports(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Ids, and the frames that tell them: in any cuts, some of them twice, in any order but for the last."""
    ids = draw(st.lists(st.one_of(st.integers(0, 40), st.integers(0, 49_151)), min_size=1, max_size=24))
    cuts = sorted({0, *draw(st.lists(st.integers(0, len(ids) - 1), max_size=8)), len(ids)})
    frames = list(pairwise(cuts))
    return ids, draw(st.permutations(frames + draw(st.lists(st.sampled_from(frames), max_size=3))))


@settings(max_examples=120, deadline=None)
@given(reports(), st.sampled_from(list(Kind)), st.booleans(), st.booleans(), st.data())
def test_a_stream_joins_to_the_whole_answer(
    tokenizer: Tokenizer,
    told: tuple[list[int], list[tuple[int, int]]],
    kind: Kind,
    skips_special: bool,
    shows_stop: bool,
    data: st.DataObject,
) -> None:
    """Text byte for byte, log-probabilities entry by entry, reason and count; and it is what the tokens spell."""
    ids, frames = told
    text = tokenizer.decode(ids, skip_special_tokens=skips_special)
    stops = tuple(dict.fromkeys(filter(None, data.draw(st.lists(_pieces(text), max_size=2)))))
    reading = Reading(len(ids), 0, stops, shows_stop, skips_special, is_noted=True)
    head = Head(kind, "id", "m", 1, names=TokenNames(tokenizer))

    deltas = _read(Choice(0, tokenizer, reading), ids, frames)
    once = _read(Choice(0, tokenizer, reading), ids, [(0, len(ids))])
    writer = ChunkWriter(head, Source(), lambda: USAGE)
    chunks: list[Any] = events(b"".join([writer.first(1), *(writer.delta(delta) for delta in deltas)]))
    (answer,) = json.loads(whole(head, [(Source(), [joined(once)])], USAGE))["choices"]

    expected = _cut(text, stops, shows_stop)
    assert text_of(chunks) == (answer["message"]["content"] if kind is Kind.CHAT else answer["text"]) == expected
    assert chunks[-1]["choices"][0]["finish_reason"] == answer["finish_reason"]
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"] is not None]
    for name in ("content",) if kind is Kind.CHAT else ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [one for part in parts for one in part[name]] == answer["logprobs"][name]


def _pieces(text: str) -> st.SearchStrategy[str]:
    """Some stretch of the text, which may go over the ends of tokens and characters of any length."""
    return st.tuples(st.integers(0, len(text)), st.integers(1, 6)).map(lambda at: text[at[0] : at[0] + at[1]])


def _read(choice: Choice, ids: list[int], frames: list[tuple[int, int]]) -> list[Delta]:
    deltas = []
    for start, end in frames:
        notes = [Note(-place / 4, (place,), (-0.5,)) for place in range(start, end)]
        choice.add(start, ids[start:end], "length" if end == len(ids) else "", notes)
        if (delta := choice.take()) is not None:
            deltas.append(delta)
    return deltas


def _cut(text: str, stops: tuple[str, ...], shows_stop: bool) -> str:
    """Up to the stop string that is complete first; of those complete at one character the longest counts."""
    ends = [(text.find(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    if not ends:
        return text
    end, length = min(ends)
    return text[: end if shows_stop else end + length]
