"""GET /v1/models and /v1/models/{id}: the served models as OpenAI's and vLLM's clients read them."""

import time
from collections.abc import Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.catalog import Catalog, Model
from services.gateway.door import Door

OWNER = "headrace"


class Models:
    """Both routes; `created` is this process's start."""

    def __init__(self, catalog: Catalog, door: Door) -> None:
        self._catalog, self._door = catalog, door
        self._created_unix_s = int(time.time())

    async def listed(self, request: Request) -> Response:
        """Those that a cell serves now, each under all its names."""
        live = (model for model in self._catalog if self._door.serves(model.name))
        return _json({"object": "list", "data": [card for model in live for card in self._cards(model)]})

    async def described(self, request: Request) -> Response:
        """Raises ModelNotFound for a name of no model, Unavailable for one that no cell serves now."""
        name = request.path_params["model"]
        model = self._catalog.model(name)
        self._door.check(model.name)
        return _json(next(card for card in self._cards(model) if card["id"] == name))

    def _cards(self, model: Model) -> Iterator[dict[str, object]]:
        for name in (model.name, *model.aliases):
            yield {
                "id": name,
                "object": "model",
                "created": self._created_unix_s,
                "owned_by": OWNER,
                "root": model.name,
                "parent": None,
                "max_model_len": model.limits.max_model_len,
            }


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
