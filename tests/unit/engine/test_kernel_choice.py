"""Which kernels a machine gets."""

import pytest

from libs.contracts.errors import ConfigError
from libs.engine.kernel_choice import check_dtype, check_head_dim, choose, level_of, settle_kernels, tile_tag

LEVELS = ("best", "good", "plain")


def chosen(wanted: str, **problems: str) -> str:
    return choose(wanted, LEVELS, lambda level: problems.get(level, ""))


@pytest.mark.parametrize(
    ("wanted", "settled"),
    [
        ("auto", "native:good"),
        ("native", "native:good"),
        ("plain", "native:plain"),
        ("native:plain", "native:plain"),
        ("torch", "torch"),
    ],
)
def test_the_best_that_is_wanted_and_can_be_had(wanted: str, settled: str) -> None:
    """A named level is taken as it is; else the first without a problem."""
    assert chosen(wanted, best="no AVX-512") == settled


def test_auto_falls_back_to_torch_and_nothing_else_does() -> None:
    """Whoever asks for native kernels hears why there are none."""
    none = dict.fromkeys(LEVELS, "no compiler")

    assert chosen("auto", **none) == "torch"
    with pytest.raises(ConfigError, match="best: no compiler; good: no compiler; plain: no compiler"):
        chosen("native", **none)
    with pytest.raises(ConfigError, match="best: no AVX-512"):
        chosen("best", best="no AVX-512")


def test_an_unknown_name_is_refused() -> None:
    """The message lists what there is."""
    with pytest.raises(ConfigError, match="auto, native, torch, best, good, plain, not 'fast'"):
        chosen("fast")


def test_native_kernels_bring_a_tile_of_their_own() -> None:
    """Pools of the two families never fit each other, nor those of two dtypes."""
    assert level_of("native:avx2") == "avx2" and level_of("torch") == ""
    assert [tile_tag("native:avx2", dtype) for dtype in ("bfloat16", "float32")] == ["cpu-vnni16", "cpu-dt"]
    assert tile_tag("torch", "bfloat16") == "plain"


@pytest.mark.parametrize("dtype", ["int8", "int8w"])
def test_torch_has_no_products_by_integers(dtype: str) -> None:
    """It says so instead of serving something else."""
    check_dtype("native:avx2", dtype)
    check_dtype("torch", "bfloat16")
    with pytest.raises(ConfigError, match=f"dtype {dtype} takes native kernels"):
        check_dtype("torch", dtype)


@pytest.mark.parametrize(("kernels", "head_dim"), [("native:avx2", 80), ("torch", 100)])
def test_heads_that_the_kernels_take(kernels: str, head_dim: int) -> None:
    """Torch takes any, native kernels multiples of sixteen."""
    check_head_dim(kernels, head_dim)


def test_auto_takes_torch_where_native_kernels_do_not_take_the_heads() -> None:
    """Of any of the models; a family that is asked for by name is refused."""
    assert settle_kernels("auto", (64, 100)) == "torch"
    assert settle_kernels("torch", (100,)) == "torch"


@pytest.mark.parametrize("head_dim", [100, 8, 272])
def test_heads_that_native_kernels_do_not_take_are_refused(head_dim: int) -> None:
    """With the key of the config that says so."""
    with pytest.raises(ConfigError, match=f"head_dim {head_dim} takes the torch kernels"):
        check_head_dim("native:avx2", head_dim)
