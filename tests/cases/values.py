"""Turns what a case file leaves open into values: `$NAME`s, lengths such as `CTX-1`, and texts given by repetition."""

import re
from collections.abc import Callable, Mapping
from typing import Any

LENGTH = re.compile(r"^(CTX|KVTOK)(?:([-+*])(\d+))?$")
NAME = re.compile(r"\$[A-Z][A-Z0-9_]*")
IDS = re.compile(r"^\$IDS\((.*)\)$")

Names = Mapping[str, Any]  # without the $; IDS is a function from text to token ids, the lengths are integers


def expand(value: Any, names: Names) -> Any:
    """`value` with everything filled in. Raises KeyError for a name that `names` lacks."""
    if isinstance(value, dict):
        return _generated(value, names) if len(value) == 1 and next(iter(value)) in GENERATORS else _dict(value, names)
    if isinstance(value, list):
        return [expand(item, names) for item in value]
    return _text(value, names) if isinstance(value, str) else value


def _dict(value: dict[str, Any], names: Names) -> dict[str, Any]:
    """A key that names several ids becomes as many keys."""
    filled = {}
    for key, item in value.items():
        known = _text(key, names) if NAME.fullmatch(key) and key[1:] in names else key
        for one in known if isinstance(known, list) else [known]:
            filled[str(one)] = expand(item, names)
    return filled


def _text(text: str, names: Names) -> Any:
    """A text that is all one name becomes its value, of whatever type; other names are filled into the text."""
    if found := IDS.match(text):
        return names["IDS"](found[1])
    if NAME.fullmatch(text) and text[1:] in names:
        return names[text[1:]]
    return NAME.sub(lambda match: str(names.get(match[0][1:], match[0])), text)


def _generated(value: dict[str, Any], names: Names) -> Any:
    kind, arguments = next(iter(value.items()))
    generator: Callable[[Any, Names], Any] = GENERATORS[kind]
    return generator(arguments, names)


def _length(count: int | str, names: Names) -> int:
    if isinstance(count, int):
        return count
    found = LENGTH.match(count)
    assert found, f"{count} is no length"
    base, sign, by = int(names[found[1]]), found[2], int(found[3] or 0)
    return {None: base, "-": base - by, "+": base + by, "*": base * by}[sign]


GENERATORS = {
    "$rep": lambda arguments, names: arguments[0] * arguments[1],
    "$cat": lambda arguments, names: "".join(expand(part, names) for part in arguments),
    "$ids": lambda arguments, names: [arguments[1]] * _length(arguments[0], names),
    "$list": lambda arguments, names: [arguments[0]] * arguments[1],
}
