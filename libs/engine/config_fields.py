"""Typed, bounded reads of an untyped config: every problem is kept, so that all are named at once."""

from collections.abc import Mapping
from typing import Any


class Fields:
    """A bad value becomes a problem and a stand-in that keeps parsing going. An absent value and null are the same."""

    def __init__(self, config: Mapping[str, Any], problems: list[str], prefix: str = "") -> None:
        self._config, self._prefix = config, prefix
        self.problems = problems

    def value(self, name: str) -> Any:
        return self._config.get(name)

    def has(self, name: str) -> bool:
        """Whether the key is there, be it null."""
        return name in self._config

    def below(self, name: str) -> "Fields":
        """The fields of an object in this one; none where there is none. Their problems are told with its name."""
        value = self._config.get(name)
        if value is not None and not isinstance(value, Mapping):
            self.problems.append(f"{self._prefix}{name} must be an object, not {shown(value)}")
        return Fields(value if isinstance(value, Mapping) else {}, self.problems, f"{self._prefix}{name}.")

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self._config.get(name)
        value = default if value is None else value
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.refuse(name, f"must be a whole number from {low} to {high}, not {shown(value)}")
        return low

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        value = self._config.get(name)
        value = default if value is None else value
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        self.refuse(name, f"must be a number from {low:g} to {high:g}, not {shown(value)}")
        return low

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._config.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            self.refuse(name, f"must be true or false, not {shown(value)}")
        return value is True

    def only(self, name: str, neutral: object) -> None:
        """Refuse a feature that changes the arithmetic and that this engine does not have."""
        value = self._config.get(name)
        if value is not None and value != neutral:
            self.refuse(name, f"{shown(value)} is not supported, only {neutral}")

    def refuse(self, name: str, reason: str) -> None:
        self.problems.append(f"{self._prefix}{name} {reason}")


def shown(value: object) -> str:
    return repr(value)[:80]
