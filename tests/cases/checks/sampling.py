"""Cases of drawing tokens, and of what changes the odds."""

import asyncio
from typing import Any

from tests.cases.play import Play


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
    """Presence and frequency are counted in the answer alone, repetition in the prompt as well."""
    plain, presence, frequency, _ = await play.play()
    assert plain.text == presence.text == frequency.text
    assert plain.lists == presence.lists == frequency.lists
    two: dict[str, Any] = {
        "allowed_token_ids": [play.stage.ids(" Paris")[0], 9],
        "max_tokens": 40,
        "return_token_ids": True,
    }
    drawn = (await play.send(2, **two, ignore_eos=True)).choices()[0]["token_ids"]
    assert set(drawn) == set(two["allowed_token_ids"]), "what is there often enough gives way"


async def b063(play: Play) -> None:
    """A penalty for repeating changes what is repeated, as the reference of the kernels does."""
    (reply,) = await play.play()
    plain = await play.send(0, without=("repetition_penalty",))
    assert reply.tokens == plain.tokens
    repeated = await asyncio.gather(*(play.send(0) for _ in range(3)))
    assert {one.text for one in repeated} == {reply.text}
