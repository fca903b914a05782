"""The tokenizer's settings."""

import pytest

from libs.contracts.errors import ConfigError
from libs.runtime.config import load_config
from services.tokenizer.config import Config

REQUIRED = {"MODEL_DIR": "models/m", "MODEL": "m", "HASH_KEY": "00ff", "MAX_MODEL_LEN": "2048"}


def load(**changes: str) -> Config:
    environ = {f"HR_TOKENIZER_{name}": value for name, value in (REQUIRED | changes).items()}
    return load_config(Config, prefix="HR_TOKENIZER_", environ=environ)


def test_the_hash_key_is_read_as_hex() -> None:
    """Its bytes are what every tokenizer hashes with."""
    assert load().hash_key_bytes == b"\x00\xff"


@pytest.mark.parametrize("key", ["", "xyz", "0", "00" * 65])
def test_a_hash_key_that_cannot_be_used_stops_the_process(key: str) -> None:
    """Without telling it."""
    with pytest.raises(ConfigError, match="HR_TOKENIZER_HASH_KEY") as caught:
        load(HASH_KEY=key)

    assert not key or key not in caught.value.message
