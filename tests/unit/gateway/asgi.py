"""A client of an ASGI app that can leave at any moment, and sees each part of the response as it is sent."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class Call:
    """One request under way."""

    def __init__(
        self,
        app: App,
        path: str,
        body: bytes = b"",
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        again: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """`headers` replace the usual ones; `again` stand behind them and may repeat a name."""
        given = {"host": "localhost:8000", "content-type": "application/json"} | (headers or {})
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self.status = 0
        self.headers: dict[str, str] = {}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in (*given.items(), *again)],
        }
        self.task = asyncio.ensure_future(app(scope, self._incoming.get, self._take))

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def part(self) -> bytes:
        """The next part of the body, once the head is here."""
        while True:
            message = await asyncio.wait_for(self._sent.get(), 5)
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                continue
            return bytes(message["body"])

    async def whole(self) -> bytes:
        """The rest of the body, once the app is done."""
        await asyncio.wait_for(self.task, 5)
        parts = []
        while not self._sent.empty():
            parts.append(await self.part())
        return b"".join(parts)

    async def json(self) -> Any:
        return json.loads(await self.whole())

    async def _take(self, message: Message) -> None:
        self._sent.put_nowait(message)


def events(body: bytes) -> list[Any]:
    """The JSON of each event, "[DONE]" as text."""
    payloads = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def text_of(chunks: list[Any]) -> str:
    """All text in a stream's events."""
    choices = [choice for chunk in chunks if chunk != "[DONE]" for choice in chunk["choices"]]
    return "".join(choice["delta"].get("content", "") if "delta" in choice else choice["text"] for choice in choices)
