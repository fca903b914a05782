"""Cases of what ends an answer."""

from tests.cases.play import Play


async def b008(play: Play) -> None:
    """Nothing of a stop string is shown."""
    streamed, whole = await play.play()
    assert streamed.text == whole.text == "GHIJ "
    assert streamed.reason == whole.reason == "stop"
    assert not any("K" in delta for delta in streamed.deltas())


async def b009(play: Play) -> None:
    """The cut is at the first character of the match, wherever tokens end."""
    replies = await play.play()
    assert [reply.text for reply in replies] == ["The q", "The quick brown f", "Th"]
    assert {reply.reason for reply in replies} == {"stop"}


async def b011(play: Play) -> None:
    """An empty stop string is refused; none at all is none."""
    *refused, empty, null = await play.play()
    assert {reply.error["param"] for reply in refused} == {"stop"}
    assert empty.text == null.text == (await play.send(0, without=("stop",))).text


async def b013(play: Play) -> None:
    """The stop string is shown to those alone who ask for it."""
    hidden, shown = await play.play()
    assert (hidden.text, shown.text) == ("5 6 ", "5 6 7")
    assert (await play.send(0, without=("include_stop_str_in_output",))).text == hidden.text


async def b015(play: Play) -> None:
    """The token that ends an answer is not text of it."""
    for reply in await play.play():
        assert play.stage.names["EOS_LITERAL"] not in reply.text
    ended = await play.send(1, logit_bias={"2": 100})
    assert (ended.text, ended.reason) == ("", "stop")


async def b016(play: Play) -> None:
    """No event without text but the one with the role; a reason may come without any."""
    (reply,) = await play.play()
    empty = [c for c in reply.choices() if c["delta"].get("content") == ""]
    assert len(empty) <= 1 and all("role" in choice["delta"] for choice in empty)
    assert reply.text == (await play.send(0, without=("stop",))).text
