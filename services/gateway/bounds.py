"""Numbers within their bounds: what is not is an InvalidRequest that names its field. Pure."""

from libs.contracts.errors import InvalidRequest


def number(name: str, value: float | None, default: float, low: float, high: float) -> float:
    """`default` for None. Raises InvalidRequest, as all here."""
    if value is None:
        return default
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be between {low:g} and {high:g}", param=name)
    return value


def integer(name: str, value: int | None, default: int | None, low: int, high: int) -> int:
    if value is None:
        return default or 0
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be between {low} and {high}", param=name)
    return value


def text(name: str, value: str | None, most_chars: int) -> str:
    """ "" for None; an empty one is refused."""
    if value is None:
        return ""
    if not 0 < len(value) <= most_chars:
        raise InvalidRequest(f"{name} needs 1 to {most_chars} characters", param=name)
    return value
