"""Settings that would open a door by accident stop the process."""

import pytest

from libs.contracts.errors import ConfigError
from libs.runtime.config import load_config
from services.gateway.config import Config, is_loopback

PREFIX = "HR_GATEWAY_"
REQUIRED = {"MODEL_DIR": "m", "MODEL": "m", "MAX_MODEL_LEN": "8"}


def load(**settings: str) -> Config:
    return load_config(
        Config, prefix=PREFIX, environ={PREFIX + key: value for key, value in (REQUIRED | settings).items()}
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "example.org", ""])
def test_a_public_host_needs_a_key(host: str) -> None:
    """No key, no start; with one it starts."""
    with pytest.raises(ConfigError, match="API_KEY"):
        load(HOST=host)
    assert load(HOST=host, API_KEY="k").host == load(HOST=host, KEYS_PATH="keys.json").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_host_needs_none(host: str) -> None:
    """Only this machine can reach it."""
    assert load(HOST=host).api_key.get_secret_value() == ""


def test_limits_have_bounds() -> None:
    """All problems in one line."""
    with pytest.raises(ConfigError) as raised:
        load(PORT="0", MAX_BODY_BYTES="1", REQUEST_TIMEOUT_S="-1", MAX_MODEL_LEN="1")
    assert all(
        name in raised.value.message for name in ("PORT", "MAX_BODY_BYTES", "REQUEST_TIMEOUT_S", "MAX_MODEL_LEN")
    )


@pytest.mark.parametrize("host", ["127.0.0.1.evil", "localhost.", "LOCALHOST", "0x7f000001", "2130706433"])
def test_what_only_looks_like_loopback_is_not(host: str) -> None:
    """Other spellings are refused rather than guessed."""
    assert not is_loopback(host)
