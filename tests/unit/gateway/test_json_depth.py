"""How deep a body may be nested."""

import json
import random
import time

import pytest

from services.gateway.json_depth import MAX_DEPTH, is_too_deep


def _nested(depth: int) -> bytes:
    return b'{"a":[' * (depth // 2) + b"[]" * (depth % 2) + b"]}" * (depth // 2)


@pytest.mark.parametrize("depth", [1, 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 2, 100_000])
def test_depth_is_counted(depth: int) -> None:
    """Arrays and objects alike."""
    assert is_too_deep(_nested(depth)) == (depth > MAX_DEPTH)


@pytest.mark.parametrize("text", ["[" * 200, '"' * 7 + "{" * 99, "\\" * 3 + "[{" * 99, '\\"]', "é[" * 100])
def test_brackets_in_strings_are_none(text: str) -> None:
    """Whatever stands around them."""
    assert not is_too_deep(json.dumps({"a": [text] * 3, "b": text}, ensure_ascii=False).encode())


def test_it_counts_as_a_parser_does() -> None:
    """On random values with brackets, quotes and backslashes everywhere."""
    draw = random.Random(5)

    def value(depth: int) -> tuple[object, int]:
        if depth == 0 or draw.random() < 0.3:
            return "".join(draw.choices('[]{}"\\a', k=draw.randrange(8))), 0
        items = [value(depth - 1) for _ in range(draw.randrange(3))]
        built = [item for item, _ in items]
        deepest = 1 + max((below for _, below in items), default=0)
        return (built if draw.random() < 0.5 else {f'"{i}[': item for i, item in enumerate(built)}), deepest

    for _ in range(200):
        found, depth = value(8)
        text = json.dumps(found).encode()
        assert all(is_too_deep(text, limit) == (depth > limit) for limit in range(9))


@pytest.mark.parametrize("payload", [b"[" * (4 << 20), b"[]," * (1 << 20), b'"[",' * (1 << 20), b"\\" * (4 << 20)])
def test_the_largest_body_takes_no_time_worth_naming(payload: bytes) -> None:
    """CPU time: others wait for it."""
    started_s = time.process_time()
    is_too_deep(payload)
    assert time.process_time() - started_s < 0.5
