"""The guard in front of every route: the key, the name that the client used for this host, and errors nobody caught.

Deny by default: what is not listed as public needs a key. Whose it is goes along with the request. The guard decides on
the path as received, never on a URL that a Host header could shift.
"""

from collections.abc import Awaitable, Callable

from libs.contracts.errors import HeadraceError
from libs.runtime.logs import get_logger
from services.gateway import reply
from services.gateway.config import is_loopback
from services.gateway.errors_http import Refused
from services.gateway.keys import ANYBODY, Caller, Keys
from services.gateway.reply import Headers, Message, Receive, Scope, Send

METRICS = "/metrics"
PUBLIC = frozenset({"/health", "/live", "/ready"})
POLICY = 1008  # close code, RFC 6455
CALLER = "headrace.caller"  # in a guarded request's scope: its Caller

log = get_logger("gateway")


class Guard:
    """An ASGI app around another. No keys are for a loopback host: then only this machine's names are let in."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        if scope["type"] != "http":
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            if scope["path"] not in PUBLIC:
                scope[CALLER] = self._caller(scope)
            await self._app(scope, receive, sending)
        except HeadraceError as error:
            await reply.error(send, error)
        except Exception as error:
            log.error("request_crashed", exc_info=error)
            if started:
                raise  # the server cuts the connection: the client must not take a part for the whole
            await reply.error(send, HeadraceError("internal error"))

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is refused before it is accepted gets an HTTP status from the server: 403."""
        try:
            scope[CALLER] = self._caller(scope)
            _check_origin(scope["headers"])
            await self._app(scope, receive, send)
        except HeadraceError as error:
            await send({"type": "websocket.close", "code": POLICY, "reason": error.message})
        except Exception as error:
            log.error("socket_crashed", exc_info=error)
            raise

    def _caller(self, scope: Scope) -> Caller:
        """Raises Unauthorized, Barred, Refused."""
        headers: Headers = scope["headers"]
        if self._keys.are_needed:
            address, _ = scope.get("client") or ("", 0)
            caller = self._keys.bearer(dict(headers).get(b"authorization", b""), address)
            caller.check_scope("metrics" if scope["path"] == METRICS else "inference")
            return caller
        hosts = [_host_name(value.decode("latin-1")) for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not is_loopback(hosts[0]):
            # Without a key, a web page elsewhere must not reach this server through a name that resolves to loopback.
            raise Refused("forbidden", "this server without a key answers to the names of its own machine only")
        return ANYBODY


def _check_origin(headers: Headers) -> None:
    """No other site's page may open a socket: browsers ask nobody before they do. Raises Refused."""
    given = dict(headers)
    origin = given.get(b"origin", b"").decode("latin-1")
    host = given.get(b"host", b"").decode("latin-1")
    if origin and origin.partition("://")[2].lower() != host.lower():
        raise Refused("forbidden", "pages of other sites may not open sockets here")


def _host_name(host: str) -> str:
    """The name in a Host header, without its port and an IPv6 address's brackets."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and (not port or port.startswith(":")) else ""
    return host.rpartition(":")[0] if ":" in host else host
