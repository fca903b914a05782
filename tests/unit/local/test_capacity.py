"""How much KV memory a stack takes."""

import pytest

from deploy.local.capacity import DEFAULT_MAX_BYTES, context_tokens, pool_blocks
from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import KvLayout

GIB = 1024**3
LAYOUT = KvLayout(30, 3, 64, 16, "bfloat16")


def test_the_pool_takes_a_share_of_free_memory_up_to_a_limit() -> None:
    """A quarter of what is free, never more than the limit, never nothing."""
    assert pool_blocks(LAYOUT, 0, 4 * GIB) == GIB // LAYOUT.block_bytes
    assert pool_blocks(LAYOUT, 0, 900 * GIB) == DEFAULT_MAX_BYTES // LAYOUT.block_bytes
    assert pool_blocks(LAYOUT, 0, 0) == 1


def test_a_pool_that_does_not_fit_is_refused() -> None:
    """An explicit size is taken as it is, or refused when the memory is not there."""
    assert pool_blocks(LAYOUT, 77, GIB) == 77
    with pytest.raises(ConfigError, match="GiB"):
        pool_blocks(LAYOUT, 10_000, GIB)


def test_the_context_is_the_models_unless_less_is_asked_for() -> None:
    """A longer context than the model's own is refused."""
    assert context_tokens(8192, 0) == 8192
    assert context_tokens(8192, 512) == 512
    for wanted in (8193, -1):
        with pytest.raises(ConfigError, match="--max-model-len"):
            context_tokens(8192, wanted)
