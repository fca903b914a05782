"""Leaf spans as a module exports them, kept instead of sent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

SAMPLED = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
UNSAMPLED = SAMPLED[:-1] + "0"


@dataclass(frozen=True)
class Leaf:
    name: str
    parent: str
    start_ns: int
    end_ns: int
    links: tuple[str, ...]
    attributes: dict[str, Any]


def keep_leaves(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Leaf]:
    """Every leaf from here on; the context of the n-th is "leaf n", counted from 0."""
    kept: list[Leaf] = []

    def leaf(
        name: str,
        parent: str,
        start_ns: int,
        end_ns: int,
        *,
        links: Iterable[str] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        kept.append(Leaf(name, parent, start_ns, end_ns, tuple(links), dict(attributes or {})))
        return f"leaf {len(kept) - 1}"

    monkeypatch.setattr(module, "leaf", leaf)
    return kept
