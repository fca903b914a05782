"""Building and loading the native kernels: fresh ones only, for this processor only, with a clear answer otherwise."""

import ctypes
import shutil
from pathlib import Path

import pytest

from kernels.native import build as building
from kernels.native.build import NoCompiler, build, find_library, source_digest
from kernels.native.levels import LEVELS, compiler_options, supported_levels
from kernels.native.library import load
from kernels.native.structs import layout
from tests.kernels.native_levels import load_or_skip

ZEN4 = "avx2 fma f16c avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16"


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    return tmp_path / "cpuinfo"


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        (ZEN4, tuple(LEVELS)),
        (ZEN4.replace("avx512_bf16", ""), ("avx512", "avx2", "portable")),
        ("avx2 fma f16c", ("avx2", "portable")),
        ("avx2 f16c", ("portable",)),
        ("", ("portable",)),
    ],
)
def test_levels_follow_the_processor_s_flags(cpuinfo: Path, flags: str, levels: tuple[str, ...]) -> None:
    """A level needs all of its instructions; the portable one needs none."""
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\nflags\t\t: fpu\n", encoding="ascii")

    assert supported_levels(cpuinfo) == levels


def test_an_unknown_processor_runs_the_portable_level(tmp_path: Path) -> None:
    """Without a list of flags nothing is taken for granted."""
    assert supported_levels(tmp_path / "none") == ("portable",)
    assert compiler_options("portable") == ()


def test_structures_are_laid_out_as_the_compiler_laid_them_out() -> None:
    """Each mirror has the size and the field offsets of its structure in api.h."""
    library = load_or_skip()
    count = library.hr_layout(None, 0)
    values = (ctypes.c_int32 * count)()

    library.hr_layout(ctypes.addressof(values), count)

    assert list(values) == list(layout())


def test_a_library_knows_its_level() -> None:
    """What is loaded is what was asked for."""
    level = supported_levels()[0]

    assert load_or_skip(level).hr_level().decode() == level


def test_levels_of_other_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name nobody knows and a level this processor lacks are told apart, before anything is executed."""
    monkeypatch.setattr("kernels.native.library.supported_levels", lambda: ("portable",))

    with pytest.raises(ValueError, match="no instruction level 'sse9'"):
        load("sse9")
    with pytest.raises(ValueError, match="does not run avx2"):
        load("avx2")


def test_without_a_compiler_the_message_names_those_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads it knows what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoCompiler, match=r"g\+\+"):
        build(["portable"], tmp_path)


def test_what_was_built_before_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image without a compiler loads what was built with it."""
    load_or_skip()
    monkeypatch.setenv("PATH", str(tmp_path))

    assert load().hr_level().decode() == supported_levels()[0]


def test_a_library_of_other_sources_is_never_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any change of a source or a header makes the old library a stranger."""
    level = supported_levels()[0]
    sources = tmp_path / "kernels"
    load_or_skip()
    shutil.copytree(building.SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(building, "SOURCES", sources)
    monkeypatch.setattr(building, "FOLDERS", (sources / "native" / "build",))
    assert find_library(level) is not None
    before = source_digest()

    with (sources / "native" / "panel.h").open("a") as header:
        header.write("\n")

    assert source_digest() != before
    assert find_library(level) is None


def test_a_source_that_does_not_compile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's own words come along, and no library is left behind."""
    (tmp_path / "native").mkdir()
    (tmp_path / "broken.cpp").write_text("#error nothing works\n", encoding="ascii")
    if shutil.which("g++") is None:
        pytest.skip("there is no compiler")
    monkeypatch.setattr(building, "SOURCES", tmp_path)

    with pytest.raises(NoCompiler, match=r"broken.cpp(.|\n)*nothing works"):
        build(["portable"], tmp_path / "out")

    assert list((tmp_path / "out").glob("*.so*")) == []


def test_set_up_compiles_the_best_level_and_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes of a slow machine are not spent on levels that it will not use; `--all` is for images."""
    wanted: list[tuple[str, ...]] = []

    def note(levels: tuple[str, ...]) -> dict[str, Path]:
        wanted.append(levels)
        return {}

    monkeypatch.setattr(building, "supported_levels", lambda: ("avx512", "avx2", "portable"))
    monkeypatch.setattr(building, "build", note)

    for arguments in ([], ["--also", "avx2"], ["--also", "avx512bf16"], ["--all"]):
        monkeypatch.setattr("sys.argv", ["build", *arguments])
        building.main()

    assert wanted == [("avx512",), ("avx512", "avx2"), ("avx512",), tuple(LEVELS)]
