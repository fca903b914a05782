"""Cases of chat templates."""

from tests.cases.play import Play


async def b099(play: Play) -> None:
    """Without a template there are no chats, and completions all the same."""
    chat, completion = await play.play()
    assert chat.status == 400 and "template" in chat.error["message"]
    assert completion.status == 200


async def b100(play: Play) -> None:
    """The template's own words reach the client."""
    for reply in await play.play():
        assert "roles must alternate user/assistant" in reply.error["message"]


async def b102(play: Play) -> None:
    """A text begins with one token of beginning, whoever puts it there."""
    chat, completion = await play.play()
    tokens = await play.stage.client.send(
        {"method": "POST", "path": "/tokenize", "body": {**play.requests[0]["body"], "add_special_tokens": False}}
    )
    bos = play.stage.ids("", special=True)[0]
    assert tokens.json["tokens"].count(bos) == 1 and tokens.json["count"] == chat.prompt_tokens
    assert completion.prompt_tokens == len(play.stage.ids("Hello", special=True))


async def b104(play: Play) -> None:
    """An answer that was begun goes on, and echo shows its beginning."""
    first, second = await play.play()
    assert first.text == second.text and first.text.startswith("This is a song about the sea")


async def b106(play: Play) -> None:
    """Parts of text are a text; others are refused."""
    parts, system, plain, empty, unknown = await play.play()
    assert (parts.text, parts.prompt_tokens) == (plain.text, plain.prompt_tokens)
    assert system.status == 200 and empty.status in (200, 400) and unknown.status == 400


async def b107(play: Play) -> None:
    """Parts are joined by newlines."""
    parts, _, newlines = await play.play()
    assert (parts.text, parts.prompt_tokens) == (newlines.text, newlines.prompt_tokens)
