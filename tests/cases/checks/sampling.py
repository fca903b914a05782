"""Cases of drawing tokens, and of what changes the odds."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.cases.play import Play
from tests.cases.reference import greedy_ids, overtaking

TOKENS, LEAST = 24, 8  # compared, unless two ids are as good as each other before


async def b041(play: Play) -> None:
    """As good as no temperature is greedy."""
    greedy = (await play.send(0, temperature=0)).text
    assert greedy and {reply.text for reply in await play.play()} == {greedy}


async def b042(play: Play) -> None:
    """The first of one, and the best, are the same."""
    assert len({reply.text for reply in await play.play()}) == 1


async def b044(play: Play) -> None:
    """A seeded request does not notice who else runs."""
    alone = await play.send(0)
    for _ in range(5):
        seeded, _ = await play.play()
        assert seeded.text == alone.text


async def b046(play: Play) -> None:
    """Samples differ from each other and repeat with their seed; without one nothing repeats."""
    samples, batch, unseeded = await play.play()
    assert len(set(samples.texts)) >= 2 and (await play.send(0)).texts == samples.texts
    assert len(set(batch.texts)) >= 2
    assert (await play.send(2)).text != unseeded.text


async def b047(play: Play) -> None:
    """What is out of bounds is refused by name; every way to say `all of them` is the same."""
    replies = await play.play()
    wrong = ("top_p", "top_p", "min_p", "min_p", "temperature", "top_k", "presence_penalty", "repetition_penalty")
    for reply, name in zip(replies[:9], (*wrong, "temperature"), strict=True):
        assert (reply.status, reply.error["param"]) == (400, name)
    off = await play.send(9, without=("top_k", "top_p"))
    assert {replies[9].text, replies[10].text, replies[12].text} == {off.text}
    assert replies[11].status == 400


async def b060(play: Play) -> None:
    """A bias on what is no token, or by what is no number in bounds, is refused; a strong one decides."""
    *refused, forced = await play.play()
    assert [(reply.status, reply.error["param"]) for reply in refused] == [(400, "logit_bias")] * 6
    again = await play.send(6, return_token_ids=True)
    assert again.choices()[0]["token_ids"] == [7] * 4 and again.text == forced.text


async def b061(play: Play) -> None:
    """Presence and frequency are counted in the answer alone, repetition in the prompt as well.

    Log-probabilities are told before penalties, so the fourth has the alternatives of the first, and it is ids that
    are compared, with those of a plain computation.
    """
    plain, presence, frequency, repetition = await play.play()
    assert plain.text == presence.text == frequency.text
    assert plain.lists == presence.lists == frequency.lists
    (plain_tops,), (tops,) = (reply.lists["top_logprobs"] for reply in (plain, repetition))
    assert len(plain_tops) >= 5 and plain_tops.items() <= tops.items()
    penalties: tuple[dict[str, float], ...] = ({}, {"presence": 2.0}, {"frequency": 2.0}, {"repetition": 1.8})
    answers = [await _ids_of(play, index, penalty) for index, penalty in enumerate(penalties)]
    assert len({answer[0] for answer in answers[:3]}) == 1
    assert answers[3] != answers[0]
    prompt_ids = (await play.send(0, return_token_ids=True)).choices()[0]["prompt_token_ids"]
    paris = prompt_ids[1]
    rival = await asyncio.to_thread(overtaking, play.stage.model_dir, prompt_ids, paris, repetition=1.8)
    first = [(await _ids_of(play, index, penalties[index], allowed=[paris, rival]))[0] for index in (0, 1, 2, 3)]
    assert first == [paris, paris, paris, rival], "what the prompt has is less likely, by repetition alone"
    two = [paris, 9]
    unbound, frequent = [await _ids_of(play, index, penalties[index], allowed=two) for index in (0, 2)]
    assert set(frequent) == set(two) and frequent != unbound, "what is there often enough gives way"


async def b063(play: Play) -> None:
    """A penalty for repeating is that of the transformers library, prompt and answer counted, each id once."""
    (reply,) = await play.play()
    ids = await _ids_of(play, 0, {"repetition": 1.3})
    assert play.stage.tokenizer.decode(ids).startswith(reply.text)
    assert ids != await _ids_of(play, 0, {}, repetition_penalty=1.0)


async def _ids_of(
    play: Play, index: int, penalty: dict[str, float], *, allowed: Sequence[int] = (), **changes: Any
) -> list[int]:
    """Greedy ids of a request of the file, past any end; they are those of the plain computation."""
    changes |= {"allowed_token_ids": list(allowed)} if allowed else {}
    reply = await play.send(index, max_tokens=TOKENS, ignore_eos=True, return_token_ids=True, **changes)
    (choice,) = reply.choices()
    ids: list[int] = choice["token_ids"]
    model_dir, prompt_ids = play.stage.model_dir, choice["prompt_token_ids"]
    expected = await asyncio.to_thread(greedy_ids, model_dir, prompt_ids, TOKENS, allowed=allowed, **penalty)
    assert len(expected) >= LEAST and ids[: len(expected)] == expected
    return ids
