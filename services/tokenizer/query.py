"""Answers gateways that only want to know which ids a prompt would be."""

from libs.contracts import codec
from libs.contracts.errors import HeadraceError, Overloaded, WireError
from libs.contracts.messages import NotTokenized, TokenIds, TokenizeQuery
from services.tokenizer.prepare import Preparing

AT_ONCE = 64  # more would only wait for a thread


class Queries:
    """`answer` is the responder of the model's tokenize subject."""

    def __init__(self, preparing: Preparing) -> None:
        self._preparing = preparing
        self._under_way = 0

    async def answer(self, payload: bytes, traceparent: str) -> bytes:
        """Raises MalformedMessage."""
        query = codec.decode(TokenizeQuery, payload)
        self._under_way += 1
        try:
            if self._under_way > AT_ONCE:
                raise Overloaded("too many prompts are being tokenized")
            reply: TokenIds | NotTokenized = TokenIds(await self._preparing.tokenize(query))
        except HeadraceError as error:
            reply = NotTokenized(WireError.of(error))
        finally:
            self._under_way -= 1
        return codec.encode_in("TokenizeReply", reply)
