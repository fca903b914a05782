"""Cases of who runs when, who leaves, and what is found again."""

import asyncio
from typing import Any

from tests.cases.faulty import collide
from tests.cases.play import Play

SOON_S = 2.0


async def b108(play: Play) -> None:
    """Who leaves before the answer is there leaves nothing to do."""
    await play.stage.client.leave(play.requests[0], 0.3)
    await play.calm(SOON_S)


async def b109(play: Play) -> None:
    """Any number may leave, at any moment."""

    async def leaving(index: int) -> None:
        await play.stage.client.send(play.requests[index], leave_after=(0, 1, 3, 10)[index])

    for _ in range(5):
        await asyncio.gather(*(leaving(index) for index in range(4)))
    await play.calm(SOON_S)


async def b112(play: Play) -> None:
    """What nobody waits for any more is not computed."""
    stage = play.stage
    running = {"prompt": "Go", "max_tokens": 150, "ignore_eos": True, "temperature": 0}
    filling = [asyncio.create_task(stage.complete({**running, "seed": seed})) for seed in range(64)]
    await asyncio.sleep(0.05)
    waiting = {"model": stage.names["MODEL"], "prompt": [9] * 500, "max_tokens": 400, "ignore_eos": True}
    request = {"method": "POST", "path": "/v1/completions", "body": waiting}
    await asyncio.gather(*(stage.client.leave(request, 0.1) for _ in range(50)))
    assert (await stage.complete({"prompt": "Hi", "max_tokens": 4})).status == 200
    assert {reply.status for reply in await asyncio.gather(*filling)} == {200}
    await play.calm(SOON_S)


async def b114(play: Play) -> None:
    """What fits no pool is refused at once, and holds up nobody."""
    too_long, short = play.requests
    asked = asyncio.create_task(play.stage.client.send(too_long))
    await asyncio.sleep(0.1)
    served = await play.stage.client.send(short)
    refused = await asked
    refused.check()
    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded") and refused.took_s < SOON_S
    assert f"at most {play.stage.names['KVTOK'] - 1} fit" in refused.error["message"]
    assert (served.status, served.tokens) == (200, 4) and served.took_s < SOON_S


async def b116(play: Play) -> None:
    """Who gives way to others goes on as if it had not."""
    crowded = await play.play()
    alone = [await play.send(index) for index in range(len(crowded))]
    assert [reply.text for reply in crowded] == [reply.text for reply in alone]


async def b118(play: Play) -> None:
    """What was generated before a request gave way is no prompt after it."""
    crowded = await play.play()
    alone = [await play.send(index) for index in range(len(crowded))]
    assert [(one.text, one.prompt_tokens, one.tokens) for one in crowded] == [
        (one.text, one.prompt_tokens, one.tokens) for one in alone
    ]


async def b119(play: Play) -> None:
    """Scores of a prompt are the same in chunks and with others beside it, and a stream begins with text."""
    scored, streamed = await play.play()
    assert len(scored.lists["token_logprobs"]) == scored.prompt_tokens + 2
    assert scored.lists["token_logprobs"][0] is None and None not in scored.lists["token_logprobs"][1:]
    assert (await play.send(0)).lists == scored.lists
    assert streamed.deltas()[0]


async def b121(play: Play) -> None:
    """Streams go on together, and one connection serves one after the other."""
    replies = await play.play()
    long = await asyncio.gather(*(play.send(index, max_tokens=400) for index in range(len(replies))))
    begun_s, first_end_s = sorted(reply.heard_s[0] for reply in long), min(reply.took_s for reply in long)
    assert begun_s[1] < first_end_s, "one after the other"
    for index in range(len(replies)):
        assert (await play.send(index)).text == replies[index].text


async def b123(play: Play) -> None:
    """A prefix that is found changes the time alone."""
    *same, longer = await play.play()
    assert len({reply.text for reply in same}) == 1
    assert all(reply.lists == same[0].lists for reply in same)
    assert all(0 < reply.cached_tokens < reply.prompt_tokens for reply in same[1:])
    ids = play.stage.ids(play.requests[0]["body"]["prompt"])[:64]
    whole_blocks = [await play.send(0, prompt=ids) for _ in range(2)]
    assert whole_blocks[0].text == whole_blocks[1].text
    assert longer.text == (await play.send(4)).text


async def b127(play: Play) -> None:
    """A salt parts what is found, and must be one."""
    replies = await play.play()
    found = [reply.cached_tokens for reply in replies[:4]]
    assert (found[0], found[2], found[3]) == (0, 0, 0) and found[1] > 0
    assert [reply.error["param"] for reply in replies[4:]] == ["cache_salt"] * 2


async def b128(play: Play) -> None:
    """Two-block prompts that differ in one token, in any place, are told apart: tokens are compared, not hashes.

    What that means where hashes collide, tests/unit/scheduler/test_sharing.py shows for the scheduler alone.
    """

    def body(at: int) -> dict[str, Any]:
        ids = [11, *[9] * at, 10 + at, *[9] * (31 - at)]
        return {"prompt": ids, "max_tokens": 4, "temperature": 0, "ignore_eos": True}

    fresh = [(await play.stage.complete(body(at))).text for at in range(32)]
    again = [(await play.stage.complete(body(at))).text for at in range(32)]
    assert fresh == again and len(set(fresh)) > 1
    if play.is_whole:
        await collide(play.scratch, 300)


async def b129(play: Play) -> None:
    """Greedy is the same each time, with and without what the first time left behind."""
    replies = await play.play()
    for index, reply in enumerate(replies):
        again = await play.send(index)
        assert (again.text, again.tokens) == (reply.text, reply.tokens)


async def b130(play: Play) -> None:
    """The earliest condition ends an answer."""
    for request, reply in zip(play.requests, await play.play(), strict=True):
        assert reply.tokens <= request["body"]["max_tokens"] and "five" not in reply.text
        assert (reply.reason == "stop") == (
            reply.tokens < request["body"]["max_tokens"] or reply.text == "one two three four "
        )


async def b132(play: Play) -> None:
    """Many bound by a schema at once are all bound."""
    for reply in await play.play():
        assert reply.reason in ("stop", "length")
