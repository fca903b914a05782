"""A decision in words for people, and as a digest that is equal only for equal decisions.

What was decided in a turn is its commands and the changed reasons of choices. Words leave out what is long and follows
from the events (token ids are counted); the digest is over every byte.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, Final

import msgspec

from services.scheduler.choice import Noted
from services.scheduler.events import Command

DIGEST_BYTES: Final = 8
# Fields of which words tell the length alone.
COUNTED: Final = frozenset({"block_hashes", "ids", "logprobs", "ranks", "top_ids", "top_logprobs"})
SHOWN_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Decision:
    """`digest` is hexadecimal; `words` has a line for each command and each changed reason."""

    digest: str
    words: tuple[str, ...]


def decision_of(commands: Sequence[Command], journal: Sequence[Noted]) -> Decision | None:
    """None where nothing was decided, as in most turns of steady decoding."""
    if not commands and not journal:
        return None
    noted = [(choice.handle, choice.request_id, reason) for choice, reason in journal]
    whole = msgspec.msgpack.encode(([(type(command).__name__, command) for command in commands], noted))
    words = [_shown(command) for command in commands]
    words += [f"{request_id} (sequence {handle}): {reason}" for handle, request_id, reason in noted]
    return Decision(hashlib.blake2b(whole, digest_size=DIGEST_BYTES).hexdigest(), tuple(words))


def _shown(value: Any) -> str:
    """A dataclass as its name and the fields that are not at their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        told = (_field(field, getattr(value, field.name)) for field in fields(value))
        return f"{type(value).__name__}({', '.join(filter(None, told))})"
    if isinstance(value, tuple | list):
        return f"[{_listed(value)}]"
    if isinstance(value, bytes):
        return value[:SHOWN_BYTES].hex()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _field(field: "Field[Any]", value: Any) -> str:
    """Empty for a value that nobody chose."""
    if value == field.default or (field.default is MISSING and isinstance(value, tuple | str) and not value):
        return ""
    if field.name in COUNTED and isinstance(value, tuple | list):
        return f"{len(value)} {field.name}"
    return f"{field.name}={_shown(value)}"


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(_shown, values))
