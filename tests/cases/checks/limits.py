"""Cases of sizes at their ends."""

from tests.cases.play import Play


async def b030(play: Play) -> None:
    """What has nothing to compute is refused."""
    replies = await play.play()
    assert {reply.status for reply in replies} <= {200, 400}
    assert [reply.status for reply in replies[:4]] == [400] * 4
    assert replies[5].status == 400 and replies[6].status == 200


async def b031(play: Play) -> None:
    """A prompt is scored without one more token; without echo there is no such answer."""
    scored, silent, echoed = await play.play()
    assert scored.status == 200 and scored.text == "The sky is blue" and scored.tokens == 0
    assert len(scored.lists["tokens"]) == scored.prompt_tokens and scored.lists["token_logprobs"][0] is None
    assert silent.status == 400 and silent.error["param"] == "max_tokens"
    assert echoed.text.startswith("The sky is blue") and echoed.tokens == 1


async def b033(play: Play) -> None:
    """One token less than the context is room for one; more is refused with both numbers."""
    fits, *refused = await play.play()
    context = play.stage.names["CTX"]
    assert fits.reason == "length"
    for reply, tokens in zip(refused, (context, context + 1, context * 4), strict=True):
        assert reply.error["code"] == "context_length_exceeded"
        assert str(context) in reply.error["message"] and str(tokens) in reply.error["message"]


async def b035(play: Play) -> None:
    """Ids that are none are refused by the field's name."""
    for reply in await play.play():
        assert reply.error["param"] == "prompt"


async def b037(play: Play) -> None:
    """Text, ids, and lists of either are the same prompt; choices are in the order of prompts."""
    alone, batch, samples, ids, streamed = await play.play()
    assert batch.texts[0] == alone.text == ids.text
    assert batch.indexes == streamed.indexes == [0, 1] and samples.indexes == [0, 1, 2, 3]
    assert streamed.texts == batch.texts == [alone.text, (await play.send(0, prompt="Bye")).text]
    assert samples.texts[:2] == (await play.send(0, n=2, temperature=1, seed=1)).texts
    assert batch.prompt_tokens == len(play.stage.ids("Hi")) + len(play.stage.ids("Bye"))


async def b038(play: Play) -> None:
    """The newer name of a chat's budget works, and wins."""
    assert [reply.tokens for reply in await play.play()] == [3, 3]


async def b040(play: Play) -> None:
    """A budget beyond what is left is what is left."""
    for reply in await play.play():
        assert reply.status == 200 and reply.tokens >= 1
        assert reply.prompt_tokens + reply.tokens <= play.stage.names["CTX"]
