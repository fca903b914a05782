"""How deep JSON is nested, without building any of it. Pure; every pass over the text is one of bytes' own."""

MAX_DEPTH = 64
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(payload: bytes, deepest: int = MAX_DEPTH) -> bool:
    """Whether arrays and objects stand in more than `deepest` others. What is no JSON may be either."""
    if payload.count(b"[") + payload.count(b"{") <= deepest:
        return False
    unescaped = payload.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(unescaped.split(b'"')[::2])  # every other piece is a string
    brackets = outside.translate(None, _ALL_BUT_BRACKETS).translate(bytes.maketrans(b"{}", b"[]"))
    for _ in range(deepest):  # each pass takes the innermost away
        shallower = brackets.replace(b"[]", b"")
        if len(shallower) == len(brackets):
            break
        brackets = shallower
    return bool(brackets)
