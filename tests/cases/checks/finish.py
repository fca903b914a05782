"""Cases of usage and of reasons to end."""

from tests.cases.play import Play


async def b017(play: Play) -> None:
    """Tokens are summed over choices, the prompt counts once."""
    for reply in (replies := await play.play()):
        assert reply.tokens == 15
        assert reply.usage["total_tokens"] == reply.prompt_tokens + reply.tokens
    assert replies[0].prompt_tokens == replies[1].prompt_tokens == len(play.stage.ids("Hi"))


async def b018(play: Play) -> None:
    """Who does not ask for usage gets no event without a choice."""
    for reply in await play.play():
        assert all(event["choices"] and not event.get("usage") for event in reply.events)


async def b020(play: Play) -> None:
    """The size of the prompt is the same in every event, however many chunks it took."""
    (reply,) = await play.play()
    told = {event["usage"]["prompt_tokens"] for event in reply.events}
    assert told == {(await play.send(0, without=("stream", "stream_options"))).prompt_tokens}


async def b022(play: Play) -> None:
    """Usage counts tokens, not events."""
    streamed, whole = await play.play()
    assert streamed.tokens == whole.tokens
    assert len((await play.send(1, logprobs=True)).entries) == whole.tokens


async def b023(play: Play) -> None:
    """Usage in every event grows to what it was in all."""
    (reply,) = await play.play()
    told = [event["usage"]["completion_tokens"] for event in reply.events]
    assert told == sorted(told) and told[-1] == 50


async def b024(play: Play) -> None:
    """Who runs out of budget ends by length."""
    for index, reply in enumerate(await play.play()):
        assert reply.reason == "length"
        assert index == 1 or reply.tokens == 4


async def b025(play: Play) -> None:
    """A constraint that is done ends by stop."""
    for reply in await play.play():
        assert reply.reason == "stop"


async def b028(play: Play) -> None:
    """Each choice ends once; that nothing follows its reason holds of every answer."""
    two, one = [await play.send(index) for index in (0, 1)]
    assert (len(two.reasons), len(one.reasons)) == (2, 1)
    assert (await play.send(2, without=("tools", "tool_choice"))).is_done
