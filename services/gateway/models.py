"""GET /v1/models and /v1/models/{id}: the served model as OpenAI's and vLLM's clients read it."""

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.limits import Limits

OWNER = "headrace"


class Models:
    """Both routes; `created` is this process's start."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._described = {
            "id": limits.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": OWNER,
            "root": limits.model,
            "parent": None,
            "max_model_len": limits.max_model_len,
        }

    async def listed(self, request: Request) -> Response:
        return _json({"object": "list", "data": [self._described]})

    async def described(self, request: Request) -> Response:
        """Raises ModelNotFound for any other model."""
        self._limits.check_model(request.path_params["model"])
        return _json(self._described)


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
