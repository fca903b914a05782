"""The HTTP routes as one ASGI app, whatever server runs it."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute

from libs.contracts.errors import HeadraceError
from libs.runtime.metrics import OPENMETRICS_TYPE
from libs.runtime.version import product_version
from services.gateway import reply
from services.gateway.auth import Guard
from services.gateway.catalog import Catalog
from services.gateway.chat_socket import ChatSocket
from services.gateway.errors_http import Refused
from services.gateway.generate import Generate
from services.gateway.keys import Keys
from services.gateway.metrics import CONTENT_TYPE
from services.gateway.models import Models
from services.gateway.openapi import openapi
from services.gateway.reply import Receive, Scope, Send
from services.gateway.service import Service
from services.gateway.tokens import Tokens
from services.gateway.validate import Kind

Scrape = Callable[[bool], Awaitable[str]]  # whether as OpenMetrics → all services' metrics


def create_app(service: Service, scrape: Scrape, keys: Keys, tokens: Tokens) -> Guard:
    """All routes, behind the guard."""
    models = Models(service.catalog, service.door)

    async def alive(request: Request) -> Response:
        return _json({"status": "alive"})

    async def healthy(request: Request) -> Response:
        """As `alive`, but a server that goes away says so to whoever sends it requests."""
        leaving = service.door.is_shut
        return _json({"status": "leaving" if leaving else "alive"}, status=503 if leaving else 200)

    async def ready(request: Request) -> Response:
        obstacle = await service.door.ready()
        return _json({"status": obstacle or "ready"}, status=503 if obstacle else 200)

    async def exposition(request: Request) -> Response:
        openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        return Response(await scrape(openmetrics), media_type=OPENMETRICS_TYPE if openmetrics else CONTENT_TYPE)

    routes: list[BaseRoute] = [
        Route("/health", healthy),
        Route("/live", alive),
        Route("/ready", ready),
        Route("/metrics", exposition),
        Route("/version", version),
        Route("/openapi.json", _fixed(_document(service.catalog))),
        Route("/tokenize", tokens.tokenize, methods=["POST"]),
        Route("/detokenize", tokens.detokenize, methods=["POST"]),
        Route("/tokenizer_info", tokens.info),
        Route("/v1/models", models.listed),
        Route("/v1/models/{model:path}", models.described),
        Route("/v1/chat/completions", Generate(Kind.CHAT, service), methods=["POST"]),
        WebSocketRoute("/v1/chat/completions", ChatSocket(service)),
        Route("/v1/completions", Generate(Kind.COMPLETION, service), methods=["POST"]),
    ]
    router = Router(routes, redirect_slashes=False)

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # makes Starlette raise for an unknown route or method instead of answering in plain text
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
            await reply.error(send, _not_routed(error), headers)
        except HeadraceError as error:
            await reply.error(send, error)

    return Guard(routed, keys)


async def version(request: Request) -> Response:
    return _json({"version": product_version()})


def _document(catalog: Catalog) -> bytes:
    names = [name for model in catalog for name in (model.name, *model.aliases)]
    return openapi([model.limits for model in catalog], names, product_version())


def _fixed(document: bytes) -> Callable[[Request], Awaitable[Response]]:
    async def told(request: Request) -> Response:
        return Response(document, media_type="application/json")

    return told


def _not_routed(error: HTTPException) -> Refused:
    if error.status_code == 405:
        return Refused("method_not_allowed", "the route does not take this method")
    return Refused("not_found", "there is no such route")


def _json(value: object, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
