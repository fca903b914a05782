"""Pages of other sites: which may ask, and how a browser is told. Nobody may unless the operator names the origin."""

from collections.abc import Awaitable, Callable

from services.gateway.reply import Headers, Message, Receive, Scope, Send

METHODS = b"GET, POST"
MAY_SEND = b"authorization, content-type, x-request-id, traceparent"
QUOTA = b", ".join(
    b"x-ratelimit-%b-%b" % (name, unit)
    for unit in (b"requests", b"tokens")
    for name in (b"limit", b"remaining", b"reset")
)
MAY_READ = b"x-request-id, retry-after, retry-after-ms, server-timing, " + QUOTA
KEPT_S = b"600"  # how long a browser need not ask again
VARIES = (b"vary", b"origin")

App = Callable[[Scope, Receive, Send], Awaitable[None]]


def parse_origins(listed: str) -> frozenset[bytes]:
    """The origins of a setting, separated by commas. Raises ValueError for what is none, `*` among it."""
    origins = [one.strip().lower() for one in listed.split(",") if one.strip()]
    for origin in origins:
        scheme, _, host = origin.partition("://")
        if scheme not in ("http", "https") or not host or set(host) & set("/*?#@ "):
            raise ValueError(f"{origin!r} is no origin such as https://chat.example")
    return frozenset(origin.encode() for origin in origins)


class Cors:
    """An ASGI app around another. A preflight is answered without a key: a browser sends none."""

    def __init__(self, app: App, origins: frozenset[bytes]) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = self._allowed(scope)
        if not allowed:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and b"access-control-request-method" in dict(scope["headers"]):
            await send({"type": "http.response.start", "status": 204, "headers": [*allowed, *_preflight()]})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await self._app(scope, receive, _adding(send, allowed))

    def _allowed(self, scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
        """What lets the page of this request read the answer; empty where it may not, or there is none."""
        if scope["type"] != "http" or not self._origins:
            return ()
        origin = dict(scope["headers"]).get(b"origin", b"")
        if origin.lower() not in self._origins:
            return ()
        return ((b"access-control-allow-origin", origin), (b"access-control-expose-headers", MAY_READ), VARIES)


def _preflight() -> Headers:
    return (
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", MAY_SEND),
        (b"access-control-max-age", KEPT_S),
        (b"content-length", b"0"),
    )


def _adding(send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
        await send(message)

    return sending
