"""The file of packed weights: shared, checked, made once."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from libs.engine.native.packed_file import Bytes, PackedKey, private_parts, shared_parts

KEY = PackedKey("a" * 32, "bfloat16", "avx2", "0123456789ab")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
SIZES = {"one": 5000, "two": 3, "three": 4096}


class Filler:
    """Writes its number into every byte, and counts how often it was asked to."""

    def __init__(self, number: int = 7) -> None:
        self.number, self.calls = number, 0

    def __call__(self, parts: Mapping[str, Bytes]) -> None:
        self.calls += 1
        for part in parts.values():
            part[:] = self.number


def parts(directory: Path, fill: Filler, key: PackedKey = KEY, sizes: Mapping[str, int] = SIZES) -> dict[str, Bytes]:
    return shared_parts(directory, key, sizes, fill, lambda: None)


def test_the_second_process_maps_what_the_first_packed(tmp_path: Path) -> None:
    """Filled once; the views are read-only, aligned to pages and of the sizes asked for."""
    first, second = Filler(), Filler(9)
    made, mapped = parts(tmp_path / "new", first), parts(tmp_path / "new", second)

    assert (first.calls, second.calls) == (1, 0)
    for views in (made, mapped):
        assert {name: view.size for name, view in views.items()} == SIZES
        assert all((view == 7).all() and not view.flags.writeable for view in views.values())
        assert all(view.ctypes.data % 4096 == 0 for view in views.values())
    assert [path.name for path in (tmp_path / "new").iterdir()] == [KEY.file_name]


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="this system has no transparent huge pages")
def test_weights_are_asked_for_in_huge_pages(tmp_path: Path) -> None:
    """The writer's mapping, a reader's and a private one: small pages cost a decode step a third of its time."""
    asked = []

    def fill(filled: Mapping[str, Bytes]) -> None:
        asked.append(is_huge(filled["one"]))

    asked += [is_huge(shared_parts(tmp_path, KEY, SIZES, fill, lambda: None)["one"])]
    asked += [is_huge(private_parts(KEY, SIZES, fill)["one"])]

    assert asked == [True] * 4


def is_huge(part: Bytes) -> bool:
    """Whether huge pages are asked for where this array lies: "hg" among the flags of its mapping."""
    within, start = False, part.ctypes.data
    for line in Path("/proc/self/smaps").read_text(encoding="ascii").splitlines():
        head = line.split(maxsplit=1)[0]
        if not head.endswith(":"):
            low, high = (int(bound, 16) for bound in head.split("-"))
            within = low <= start < high
        elif within and head == "VmFlags:":
            return "hg" in line.split()
    return False


@pytest.mark.parametrize("damage", ["header", "short", "long", "empty"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: str) -> None:
    """Neither another header nor another length is trusted."""
    parts(tmp_path, Filler())
    path = tmp_path / KEY.file_name
    content = path.read_bytes()
    wrong = {"header": b"x" + content[1:], "short": content[:-1], "long": content + b"\0", "empty": b""}
    path.write_bytes(wrong[damage])
    again = Filler(9)

    assert all((view == 9).all() for view in parts(tmp_path, again).values())
    assert again.calls == 1


@pytest.mark.parametrize("field", ["model_digest", "dtype", "level", "kernels"])
def test_a_file_for_something_else_is_not_taken(tmp_path: Path, field: str) -> None:
    """Even under the name of the one wanted."""
    other = replace(KEY, **{field: "b" * 12})
    parts(tmp_path, Filler(1), other)
    (tmp_path / other.file_name).rename(tmp_path / KEY.file_name)

    assert all((view == 2).all() for view in parts(tmp_path, Filler(2)).values())


def test_other_sizes_are_another_file(tmp_path: Path) -> None:
    """The table of parts is part of the header."""
    parts(tmp_path, Filler(1))

    views = parts(tmp_path, Filler(2), sizes=SIZES | {"two": 4})

    assert all((view == 2).all() for view in views.values())


def test_new_kernels_replace_the_file_of_the_old_ones(tmp_path: Path) -> None:
    """And what a killed process left; files of other models and types stay."""
    neighbour = replace(KEY, dtype="float32")
    for key in (KEY, neighbour):
        parts(tmp_path, Filler(), key)
    (tmp_path / f".{KEY.file_name}.123").touch()
    new = replace(KEY, kernels="ba9876543210")

    parts(tmp_path, Filler(), new)

    assert {path.name for path in tmp_path.iterdir()} == {new.file_name, neighbour.file_name}


def test_a_failed_fill_leaves_nothing(tmp_path: Path) -> None:
    """No file, no scratch file, no lock."""

    def fail(parts: Mapping[str, Bytes]) -> None:
        raise RuntimeError("broken model")

    with pytest.raises(RuntimeError, match="broken model"):
        shared_parts(tmp_path, KEY, SIZES, fail, lambda: None)

    assert list(tmp_path.iterdir()) == []
    parts(tmp_path, Filler())


def test_two_at_once_pack_once(tmp_path: Path) -> None:
    """The second waits for the first, and may give up waiting."""
    filling, may_end = threading.Event(), threading.Event()
    waited = threading.Event()

    class Slow(Filler):
        def __call__(self, parts: Mapping[str, Bytes]) -> None:
            filling.set()
            assert may_end.wait(5)
            super().__call__(parts)

    def give_up() -> None:
        if waited.is_set():
            raise InterruptedError
        waited.set()

    slow, second = Slow(), Filler(9)
    maker = threading.Thread(target=parts, args=(tmp_path, slow))
    maker.start()
    assert filling.wait(5)
    with pytest.raises(InterruptedError):
        shared_parts(tmp_path, KEY, SIZES, second, give_up)
    may_end.set()
    maker.join(5)

    assert all((view == 7).all() for view in parts(tmp_path, second).values())
    assert second.calls == 0


def test_private_parts_are_the_same_bytes() -> None:
    """Without a directory each process fills memory of its own."""
    views = private_parts(KEY, SIZES, Filler())

    assert {name: view.size for name, view in views.items()} == SIZES
    assert np.concatenate(list(views.values())).min() == 7
