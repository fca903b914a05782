"""The guard in front of every route: the key, the name that the client used for this host, and errors nobody caught.

Deny by default: what is not listed as public needs the key. It decides on the path as received, never on a URL that a
Host header could shift.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable

from libs.contracts.errors import HeadraceError, Unauthorized
from libs.runtime.logs import get_logger
from services.gateway import reply
from services.gateway.config import is_loopback
from services.gateway.errors_http import Refused
from services.gateway.reply import Headers, Message, Receive, Scope, Send

PUBLIC = frozenset({"/health", "/live", "/ready"})

log = get_logger("gateway")


class Guard:
    """An ASGI app around another. `api_key` "" is for a loopback host: then only this machine's names are let in."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], api_key: str) -> None:
        self._app = app
        self._key_digest = _digest(api_key.encode()) if api_key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            if scope["path"] not in PUBLIC:
                self._check(scope["headers"])
            await self._app(scope, receive, sending)
        except HeadraceError as error:
            await reply.error(send, error)
        except Exception as error:
            log.error("request_crashed", exc_info=error)
            if started:
                raise  # the server cuts the connection: the client must not take a part for the whole
            await reply.error(send, HeadraceError("internal error"))

    def _check(self, headers: Headers) -> None:
        if self._key_digest:
            scheme, _, key = dict(headers).get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(_digest(key), self._key_digest):
                raise Unauthorized("a valid API key is needed: Authorization: Bearer KEY")
            return
        hosts = [_host_name(value.decode("latin-1")) for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not is_loopback(hosts[0]):
            # Without a key, a web page elsewhere must not reach this server through a name that resolves to loopback.
            raise Refused("forbidden", "this server without a key answers to the names of its own machine only")


def _digest(key: bytes) -> bytes:
    """Equal lengths, so that comparing takes the same time whatever is compared."""
    return hashlib.sha256(key).digest()


def _host_name(host: str) -> str:
    """The name in a Host header, without its port and an IPv6 address's brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
