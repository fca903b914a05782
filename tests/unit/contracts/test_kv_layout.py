"""A pool is attached only by who agrees on every number of it."""

from dataclasses import replace

import pytest

from libs.contracts.kv_layout import FILL_COUNTS_OFFSET, PAGE_BYTES, KvLayout, blocks_for, kv_dtype_of

LAYOUT = KvLayout(layers=30, kv_heads=3, head_dim=64, block_tokens=16, dtype="bfloat16")


def test_a_block_of_the_default_model_is_what_the_formula_says() -> None:
    """2 (K, V) × 30 layers × 3 heads × 64 dims × 2 bytes = 23,040 bytes a token."""
    assert (LAYOUT.token_bytes, LAYOUT.block_bytes) == (23_040, 368_640)


def test_blocks_start_on_a_page_behind_the_fill_counts() -> None:
    """The header grows with the number of blocks and keeps the first block page-aligned."""
    for blocks in (1, 1008, 1009, 100_000):
        assert LAYOUT.header_bytes(blocks) % PAGE_BYTES == 0
        assert 0 <= LAYOUT.header_bytes(blocks) - FILL_COUNTS_OFFSET - 4 * blocks < PAGE_BYTES


def test_a_header_tells_its_blocks() -> None:
    """Written by the owner, read by every worker."""
    assert LAYOUT.check_header(LAYOUT.pack_header(77), LAYOUT.pool_bytes(77)) == 77


@pytest.mark.parametrize(
    "other", [{"layers": 29}, {"kv_heads": 4}, {"head_dim": 32}, {"block_tokens": 32}, {"dtype": "float32"}], ids=str
)
def test_another_layout_is_refused(other: dict[str, object]) -> None:
    """Reading blocks with other axes would give silent nonsense."""
    with pytest.raises(ValueError, match="another KV layout"):
        replace(LAYOUT, **other).check_header(LAYOUT.pack_header(7), 1 << 40)  # type: ignore[arg-type]


@pytest.mark.parametrize("header, size", [(b"\0" * 64, 1 << 40), (LAYOUT.pack_header(7), 100)], ids=["junk", "short"])
def test_a_file_that_is_no_whole_pool_is_refused(header: bytes, size: int) -> None:
    """A short file would fault at the first access of its missing part."""
    with pytest.raises(ValueError):
        LAYOUT.check_header(header, size)


def test_blocks_round_up() -> None:
    """One token more than a block takes a second block."""
    assert [blocks_for(n, 16) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_weights_of_eight_bits_leave_kv_in_bfloat16() -> None:
    """The dtype of weights says which of KV; an unknown one says nothing."""
    assert [kv_dtype_of(dtype) for dtype in ("float32", "bfloat16", "int8", "int8w")] == ["float32"] + 3 * ["bfloat16"]
    with pytest.raises(ValueError, match="not 'int4'"):
        kv_dtype_of("int4")
