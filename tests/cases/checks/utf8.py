"""Cases of text that comes in pieces."""

from tests.cases.play import Play
from tests.cases.reply import Reply

LOST = "\ufffd"


def _is_exactly(text: str, streamed: Reply, whole: Reply) -> None:
    assert streamed.text == whole.text == text
    assert not any(LOST in delta for delta in streamed.deltas())


async def b001(play: Play) -> None:
    """An emoji over several tokens comes out whole."""
    streamed, whole = await play.play()
    _is_exactly("🐈 猫 🧑‍🚀 龜", streamed, whole)


async def b002(play: Play) -> None:
    """A character that the budget cuts is one U+FFFD, streamed or not, and the reason is the budget."""
    replies = await play.play()
    for asked, whole, streamed in zip((1, 2, 3), replies[::2], replies[1::2], strict=True):
        assert whole.reason == streamed.reason == "length"
        assert whole.text == streamed.text
        assert whole.tokens == asked and whole.text.rstrip(LOST) == "🫠🫠🫠"[: len(whole.text.rstrip(LOST))]


async def b004(play: Play) -> None:
    """Tokens of one byte each join to characters."""
    streamed, whole = await play.play()
    _is_exactly("naïve 𝔘𝔫𝔦 ✅ ñandú", streamed, whole)


async def b006(play: Play) -> None:
    """No blank is lost between two deltas."""
    streamed, whole = await play.play()
    again = await play.send(1, return_token_ids=True)
    ids = again.choices()[0]["token_ids"]
    assert streamed.text == whole.text == again.text == play.stage.tokenizer.decode(ids, skip_special_tokens=True)


async def b007(play: Play) -> None:
    """Blanks at the start of an answer stay."""
    streamed, whole = await play.play()
    assert streamed.text == whole.text == "  two spaces first"
