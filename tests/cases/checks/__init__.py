"""What must hold of each case, one function a case, named after it; what every answer must be is in reply.py."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import ModuleType

from tests.cases.checks import (
    finish,
    http,
    limits,
    loading,
    logprobs,
    ops,
    sampling,
    scheduling,
    security,
    stops,
    structured,
    template,
    utf8,
)
from tests.cases.play import Play

Check = Callable[[Play], Awaitable[None]]
MODULES = (
    finish, http, limits, loading, logprobs, ops,
    sampling, scheduling, security, stops, structured, template, utf8,
)  # fmt: skip


def checks() -> Mapping[str, Check]:
    """By the id of the case."""
    return {name.upper(): check for module in MODULES for name, check in _of(module)}


def _of(module: ModuleType) -> Iterator[tuple[str, Check]]:
    for name, found in vars(module).items():
        if name[0] == "b" and name[1:].isdigit():
            yield name, found
