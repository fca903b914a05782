"""A client of an ASGI app's WebSocket that says and hears one message at a time, and can leave at any moment."""

import asyncio
import json
from typing import Any

from tests.unit.gateway.asgi import App, Message


class Socket:
    """One socket under way; `closed` is the code that the app closed it with."""

    def __init__(self, app: App, path: str = "/v1/chat/completions", **headers: str) -> None:
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "websocket.connect"})
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self.closed = 0
        given = {"host": "localhost:8000"} | headers
        scope: Message = {
            "type": "websocket",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "ws",
            "subprotocols": [],
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        self.task = asyncio.ensure_future(app(scope, self._incoming.get, self._take))

    def say(self, message: object) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        self._incoming.put_nowait({"type": "websocket.receive", "text": text})

    def say_bytes(self, payload: bytes) -> None:
        self._incoming.put_nowait({"type": "websocket.receive", "bytes": payload})

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def hear(self) -> Any:
        """The next message of the app, "[DONE]" as text; None once it has closed the socket."""
        while True:
            message = await asyncio.wait_for(self._sent.get(), 5)
            if message["type"] == "websocket.close":
                self.closed = message["code"]
                return None
            if message["type"] == "websocket.send":
                text = message["text"]
                return text if text == "[DONE]" else json.loads(text)

    async def hear_answer(self) -> list[Any]:
        """Up to the end of one answer."""
        heard = [await self.hear()]
        while heard[-1] is not None and heard[-1] != "[DONE]" and "choices" in heard[-1]:
            heard.append(await self.hear())
        return heard

    async def _take(self, message: Message) -> None:
        self._sent.put_nowait(message)
