"""How much KV memory a stack takes."""

from typing import Any

import pytest

from deploy.local.capacity import DEFAULT_MAX_BYTES, context_tokens, kv_layout, pool_blocks
from libs.contracts.errors import ConfigError

GIB = 1024**3
CONFIG: dict[str, Any] = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "max_position_embeddings": 8192,
}


def test_the_layout_comes_from_the_model() -> None:
    """Layers, kv heads and head dim are read from config.json; the head dim is derived where it is not named."""
    layout = kv_layout(CONFIG, block_tokens=16, dtype="bfloat16")

    assert (layout.layers, layout.kv_heads, layout.head_dim) == (30, 3, 64)
    assert layout.token_bytes == 30 * 2 * 3 * 64 * 2


def test_a_model_without_grouped_heads_has_as_many_kv_heads_as_heads() -> None:
    """num_key_value_heads may be missing."""
    config = {name: value for name, value in CONFIG.items() if name != "num_key_value_heads"}

    assert kv_layout(config, block_tokens=16, dtype="float32").kv_heads == 9


@pytest.mark.parametrize("broken", [{"num_hidden_layers": None}, {"num_attention_heads": 0}, {"hidden_size": "x"}])
def test_a_broken_config_is_one_clear_error(broken: dict[str, Any]) -> None:
    """Whatever is wrong with the numbers, the start fails with a ConfigError."""
    with pytest.raises(ConfigError):
        kv_layout(CONFIG | broken, block_tokens=16, dtype="float32")


def test_the_pool_takes_a_share_of_free_memory_up_to_a_limit() -> None:
    """A quarter of what is free, never more than the limit, never nothing."""
    layout = kv_layout(CONFIG, block_tokens=16, dtype="bfloat16")

    assert pool_blocks(layout, 0, 4 * GIB) == GIB // layout.block_bytes
    assert pool_blocks(layout, 0, 900 * GIB) == DEFAULT_MAX_BYTES // layout.block_bytes
    assert pool_blocks(layout, 0, 0) == 1


def test_a_pool_that_does_not_fit_is_refused() -> None:
    """An explicit size is taken as it is, or refused when the memory is not there."""
    layout = kv_layout(CONFIG, block_tokens=16, dtype="bfloat16")

    assert pool_blocks(layout, 77, GIB) == 77
    with pytest.raises(ConfigError, match="GiB"):
        pool_blocks(layout, 10_000, GIB)


def test_the_context_is_the_models_unless_less_is_asked_for() -> None:
    """A longer context than the model's own is refused."""
    assert context_tokens(CONFIG, 0) == 8192
    assert context_tokens(CONFIG, 512) == 512
    with pytest.raises(ConfigError):
        context_tokens(CONFIG, 8193)
    with pytest.raises(ConfigError):
        context_tokens({}, 0)
