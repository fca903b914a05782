"""Cases of log-probabilities."""

import math

from tests.cases.play import Play
from tests.cases.reply import Reply


def _finite(reply: Reply) -> None:
    for entry in reply.entries:
        for one in (entry, *entry["top_logprobs"]):
            assert math.isfinite(one["logprob"]) and one["logprob"] <= 0


async def b048(play: Play) -> None:
    """One entry a token; alternatives need the flag that asks for any."""
    bare, zero, refused, off = await play.play()
    for reply in (bare, zero):
        assert len(reply.entries) == reply.tokens
        assert all(set(entry) == {"token", "logprob", "bytes", "top_logprobs"} for entry in reply.entries)
        assert not any(entry["top_logprobs"] for entry in reply.entries)
    assert refused.error["param"] == "top_logprobs"
    assert off.choices()[0]["logprobs"] is None


async def b049(play: Play) -> None:
    """The bytes of all tokens are those of the answer."""
    (reply,) = await play.play()
    for one in (reply, await play.send(0, stream=True)):
        joined = bytes(byte for entry in one.entries for byte in entry["bytes"] or ())
        assert joined == reply.text.encode() == "“🐈”".encode()
        assert not any(entry["bytes"] == [239, 191, 189] for entry in one.entries)


async def b051(play: Play) -> None:
    """Each position has its own alternatives, and greedy takes the first."""
    whole, streamed = await play.play()
    for entry in whole.entries:
        told = [one["logprob"] for one in entry["top_logprobs"]]
        assert told == sorted(told, reverse=True)
        first = entry["top_logprobs"][0]
        assert (first["token"], first["logprob"]) == (entry["token"], entry["logprob"])
    assert streamed.entries == whole.entries


async def b052(play: Play) -> None:
    """Every number is one, also of what could not be drawn."""
    drawn, bound, biased = await play.play()
    _finite(bound)
    for reply in (drawn, biased):
        told = [*reply.lists["token_logprobs"], *(n for top in reply.lists["top_logprobs"] for n in top.values())]
        assert told and all(math.isfinite(one) and one <= 0 for one in told)


async def b054(play: Play) -> None:
    """A completion has four lists of one length."""
    two, none = await play.play()
    for reply in (two, none):
        assert {len(one) for one in reply.lists.values()} == {reply.tokens}
        assert 0 < math.exp(sum(reply.lists["token_logprobs"])) <= 1
    assert all(len(top) >= 2 for top in two.lists["top_logprobs"])
    assert all(len(top) <= 1 for top in none.lists["top_logprobs"])


async def b056(play: Play) -> None:
    """Echoed tokens join to the text, and offsets are lengths of what came before."""
    (reply,) = await play.play()
    lists = reply.lists
    assert "".join(lists["tokens"]) == reply.text
    assert lists["text_offset"] == [len("".join(lists["tokens"][:index])) for index in range(len(lists["tokens"]))]
    assert lists["token_logprobs"][0] is None and all(one <= 0 for one in lists["token_logprobs"][1:])


async def b058(play: Play) -> None:
    """A stream has the entries of the whole."""
    chat, completion = await play.play()
    assert chat.entries == (await play.send(0, stream=False)).entries
    assert completion.lists == (await play.send(1, stream=False)).lists


async def b059(play: Play) -> None:
    """Every count up to the bound is alike; beyond it is refused."""
    *fine, many, negative = await play.play()
    for asked, reply in zip((1, 9, 10, 11, 20), fine, strict=True):
        assert reply.status == 200
        assert {len(top) for top in reply.lists["top_logprobs"][1:]} <= {asked, asked + 1}
    assert (many.error["param"], negative.error["param"]) == ("top_logprobs", "top_logprobs")
