"""Errors as gRPC: the one table from an error's code to a status, and the metadata that tells the rest."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from grpc import StatusCode

from libs.contracts.errors import HeadraceError
from services.gateway.errors_http import headers_of

STATUS: Final[Mapping[str, StatusCode]] = MappingProxyType(
    {
        "invalid_request": StatusCode.INVALID_ARGUMENT,
        "context_length_exceeded": StatusCode.INVALID_ARGUMENT,
        "no_token_allowed": StatusCode.INVALID_ARGUMENT,
        "malformed_message": StatusCode.INVALID_ARGUMENT,
        "body_too_large": StatusCode.RESOURCE_EXHAUSTED,  # as gRPC itself says of a message beyond its limit
        "invalid_api_key": StatusCode.UNAUTHENTICATED,
        "forbidden": StatusCode.PERMISSION_DENIED,
        "model_not_found": StatusCode.NOT_FOUND,
        "overloaded": StatusCode.RESOURCE_EXHAUSTED,
        "unavailable": StatusCode.UNAVAILABLE,
        "fenced": StatusCode.UNAVAILABLE,
        "worker_lost": StatusCode.UNAVAILABLE,
        "deadline_unreachable": StatusCode.RESOURCE_EXHAUSTED,
        "rate_limit_exceeded": StatusCode.RESOURCE_EXHAUSTED,
        "deadline_exceeded": StatusCode.DEADLINE_EXCEEDED,
        "poison": StatusCode.INTERNAL,
    }
)
CODE, PARAM = "headrace-code", "headrace-param"
PUSHBACK = "grpc-retry-pushback-ms"  # clients that retry wait so long, or with −1 do not (gRFC A6)
HTTP_RETRY, HTTP_NO_RETRY = b"retry-after-ms", b"x-should-retry"


def status_of(error: HeadraceError) -> StatusCode:
    return STATUS.get(error.code, StatusCode.INTERNAL)


def trailers_of(error: HeadraceError) -> tuple[tuple[str, str], ...]:
    """Trailing metadata: the code, the field at fault, and when to come back, as HTTP would tell them."""
    trailers = [(CODE, error.code)]
    if error.param:
        trailers.append((PARAM, error.param.encode("ascii", "backslashreplace").decode()))
    http = dict(headers_of(error))
    if HTTP_RETRY in http:
        trailers.append((PUSHBACK, http[HTTP_RETRY].decode()))
    elif HTTP_NO_RETRY in http:
        trailers.append((PUSHBACK, "-1"))
    return tuple(trailers)
