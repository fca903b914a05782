"""Cases of output that a schema, a pattern, a grammar or a list of choices binds."""

import asyncio
import re
from typing import Any

import jsonschema

from tests.cases.play import Play
from tests.cases.reply import Reply, strictly

SOON_S, SEEDS = 2.0, 20
BLANKS = re.compile(r"\s+")


def _value(reply: Reply) -> Any:
    """What the answer says, where it was not cut."""
    return strictly(reply.text) if reply.reason == "stop" else None


async def b065(play: Play) -> None:
    """No schema at all is told by the field's name."""
    for reply in await play.play():
        assert (reply.error["param"] or "").startswith("response_format")


async def b066(play: Play) -> None:
    """What is no pattern, or none of ours, is refused; a repetition of a repetition is one."""
    for request in play.requests:
        reply = await play.stage.client.send(request)
        reply.check()
        if request["body"]["structured_outputs"]["regex"] == "ab**":
            assert reply.status == 200 and re.fullmatch(r"ab*", reply.text)
        else:
            assert reply.status == 400 and reply.error["param"].startswith("structured_outputs")


async def b067(play: Play) -> None:
    """Nothing to be bound by is refused, and so is more than one thing."""
    await play.play()


async def b069(play: Play) -> None:
    """Properties that a schema does not name are kept out, or are what it says of them."""
    await play.play()
    for index, request in enumerate(play.requests):
        schema = request["body"]["response_format"]["json_schema"]["schema"]
        replies = await asyncio.gather(*(play.send(index, seed=seed) for seed in range(SEEDS)))
        for reply in replies:
            assert reply.status == 200 and reply.reason in ("stop", "length")
            if reply.reason == "stop":
                jsonschema.validate(_value(reply), schema)
                assert index >= 2 or set(_value(reply)) <= {"kind", "number"}
        assert index >= 2 or any(reply.reason == "stop" for reply in replies)


async def b070(play: Play) -> None:
    """A choice behind a reference is a choice."""
    await play.play()
    value = _value(await play.send(0, max_tokens=400))
    assert value["c"] in ("red", "green") and len(value["l"]) == 2 and set(value["l"]) <= {"red", "green"}


async def b072(play: Play) -> None:
    """A schema may lead back to itself by way of something, never at once."""
    tree, *cycles = await play.play()
    assert tree.status in (200, 400) and (tree.status == 400 or tree.reason == "length" or "kids" in _value(tree))
    assert [reply.status for reply in cycles] == [400, 400]
    assert max(reply.took_s for reply in (tree, *cycles)) < SOON_S


async def b074(play: Play) -> None:
    """Alternatives at the top of a pattern are alternatives of the whole."""
    for reply in await play.play():
        assert reply.reason == "stop" and _value(reply) in ("yes", "no")


async def b076(play: Play) -> None:
    """A pattern that is not understood is refused, and never forgotten."""
    for reply, pattern in zip(await play.play(), (r"hi there!", r"[\u0370-\u1fff]+", None, r"aa"), strict=True):
        if reply.status == 200:
            assert pattern and (reply.reason == "length" or re.fullmatch(pattern, _value(reply)))


async def b077(play: Play) -> None:
    """Between the parts of an object there is little room, however much a model likes blanks."""
    (reply,) = await play.play()
    assert reply.reason == "stop" and _value(reply)["q"] in ("a", "b")
    assert max(map(len, BLANKS.findall(reply.text)), default=0) <= 32


async def b079(play: Play) -> None:
    """Text that is not ASCII is itself after one decoding."""
    (reply,) = await play.play()
    value = _value(reply)
    assert value["e"] == "公司上市" and value["f"] in ("naïve", '€ "q" \\ \n')


async def b080(play: Play) -> None:
    """A choice may be of bytes that no token is."""
    one, two = await play.play()
    assert one.text == "🐈" and two.text in ("🐈", "🐕")


async def b082(play: Play) -> None:
    """A keyword is kept or refused."""
    for reply in await play.play():
        assert reply.status in (200, 400)
        if reply.status == 400:
            assert (reply.error["param"] or "").startswith("response_format")
    number, *_ = [await play.send(0)]
    assert number.status == 400 or number.reason == "length" or _value(number) % 5 == 0


async def b122(play: Play) -> None:
    """Requests whose schemas take long hold up nobody, whether their clients wait or not."""
    stage, chat = play.stage, "/v1/chat/completions"
    messages = [{"role": "user", "content": "x"}]

    def schema(index: int) -> dict[str, Any]:
        names = {f"p{index}_{at}": {"type": "string", "maxLength": 40} for at in range(40)}
        of = {"type": "object", "properties": names, "required": list(names), "additionalProperties": False}
        return {"type": "json_schema", "json_schema": {"name": "s", "schema": of}}

    async def leaving(index: int) -> None:
        body = {"model": stage.names["MODEL"], "messages": messages, "max_tokens": 2000, "ignore_eos": True}
        await stage.client.leave({"method": "POST", "path": chat, "body": body}, 0.05 + index / 1000)

    plain = {"messages": messages, "max_tokens": 8}
    asked = [stage.complete({**plain, "response_format": schema(index)}, chat) for index in range(24)]
    asked += [stage.complete(plain, chat) for _ in range(24)]
    *replies, _ = await asyncio.gather(*asked, asyncio.gather(*map(leaving, range(24))))
    assert {reply.status for reply in replies} == {200}
    (last,) = await play.play()
    assert last.took_s < SOON_S


async def b182(play: Play) -> None:
    """Depth has a bound, of bodies as of what they hold."""
    pattern, grammar = [request for request in play.requests if "body" in request]
    nested: Any = {"type": "integer"}
    for _ in range(900):  # what Python's own encoder can still write
        nested = {"type": "array", "items": nested}
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": nested}}
    for request in (pattern, grammar, {**pattern, "body": {**pattern["body"], "response_format": schema}}):
        reply = await play.stage.client.send(request)
        reply.check()
        assert reply.status == 400 and reply.took_s < SOON_S
    text = '{"model": "m", "messages": [{"role": "user", "content": "x"}], "unknown": ' + "[" * 100_000
    headers = {"content-type": "application/json"}
    reply = await play.stage.client.send({**pattern, "raw": text + "]" * 100_000 + "}", "headers": headers})
    reply.check()
    assert reply.status == 400 and reply.took_s < SOON_S


async def b184(play: Play) -> None:
    """A pattern that repeats what may be empty ends, and matches."""
    patterns = (r"([abc]*)*", r"(a*)+", r"(|a)*b", r"((a|)*)*c")
    for reply, pattern in zip(await play.play(), patterns, strict=True):
        assert reply.took_s < SOON_S and reply.status in (200, 400)
        if reply.status == 200 and reply.reason == "stop":
            assert re.fullmatch(pattern, reply.text)
