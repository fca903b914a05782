"""Errors that may cross a service boundary.

HeadraceError
├── ConfigError         the process must not start
├── InvalidRequest      the client must change the request; `param` names the field
│   ├── NoTokenAllowed  its parameters ban every token that could follow
│   ├── ContextTooLong  prompt plus one token do not fit the context or the pool
│   └── ModelNotFound   no cell serves this model
├── Unauthorized        no key, or a wrong one
├── Overloaded          retry later: a queue or the admission bound is full
│   └── DeadlineUnreachable  others are before it for so long that it could not be done in its time
├── Unavailable         retry later: draining, or no path to a worker
├── DeadlineExceeded    nobody is waiting any more
├── WorkerLost          the worker died and the work could not be moved
├── Poison              workers die of this request; it must not be sent again
├── NumericalError      logits were not finite
├── MalformedMessage    bytes that are no message of this version
├── ExactnessViolation  two reports of the same position differ
└── Fenced              a newer term or incarnation owns this
"""

from dataclasses import dataclass


class HeadraceError(Exception):
    """Base. `code` is stable on the wire; `retryable` tells a caller what to do about it."""

    code = "internal"
    retryable = False

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ConfigError(HeadraceError):
    code = "config"


class InvalidRequest(HeadraceError):
    code = "invalid_request"


class ContextTooLong(InvalidRequest):
    code = "context_length_exceeded"


class NoTokenAllowed(InvalidRequest):
    code = "no_token_allowed"


class ModelNotFound(InvalidRequest):
    code = "model_not_found"


class Unauthorized(HeadraceError):
    code = "invalid_api_key"


class Overloaded(HeadraceError):
    code, retryable = "overloaded", True


class DeadlineUnreachable(Overloaded):
    code = "deadline_unreachable"


class Unavailable(HeadraceError):
    code, retryable = "unavailable", True


class DeadlineExceeded(HeadraceError):
    code = "deadline_exceeded"


class WorkerLost(HeadraceError):
    code, retryable = "worker_lost", True


class Poison(HeadraceError):
    code = "poison"


class NumericalError(HeadraceError):
    code = "numerical_error"


class MalformedMessage(HeadraceError):
    code = "malformed_message"


class ExactnessViolation(HeadraceError):
    code = "exactness_violation"


class Fenced(HeadraceError):
    code = "fenced"


@dataclass(frozen=True, slots=True)
class WireError:
    """A HeadraceError as it travels. `param` is empty where no field is to blame."""

    code: str
    message: str
    param: str = ""
    retryable: bool = False

    @classmethod
    def of(cls, error: HeadraceError) -> "WireError":
        return cls(error.code, error.message, error.param or "", error.retryable)

    def to_exception(self) -> HeadraceError:
        """The typed error again; an unknown code (from a newer peer) becomes the base class."""
        kind = next((k for k in all_kinds() if k.code == self.code), HeadraceError)
        return kind(self.message, param=self.param or None)


def all_kinds() -> list[type[HeadraceError]]:
    """Every type of the tree above, the base first; refinements of other modules travel as their base."""
    return [kind for kind in _tree(HeadraceError) if kind.__module__ == __name__]


def _tree(kind: type[HeadraceError]) -> list[type[HeadraceError]]:
    return [kind, *(leaf for sub in kind.__subclasses__() for leaf in _tree(sub))]
