"""Settings come from the environment alone, and all that is wrong with them is told at once."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr, ValidationError

from libs.contracts.errors import ConfigError
from libs.runtime.config import ServiceConfig, describe, load_config

PREFIX = "HR_GATEWAY_"


class Config(ServiceConfig):
    port: int = Field(default=8000, ge=1, le=65535)
    model: str
    api_key: SecretStr = SecretStr("")


def load(**variables: str) -> Config:
    return load_config(Config, prefix=PREFIX, environ={f"{PREFIX}{name}": value for name, value in variables.items()})


def test_variables_become_typed_settings() -> None:
    """Text is converted to each field's type, and the rest are defaults."""
    config = load(PORT="9000", MODEL="m", LOG_LEVEL="debug")

    assert (config.port, config.model, config.log_level, config.drain_s) == (9000, "m", "debug", 5.0)


def test_an_instance_is_named_once_per_start() -> None:
    """Two starts of a service get different names; a given name is kept."""
    first, second = load(MODEL="m"), load(MODEL="m")

    assert first.instance != second.instance
    assert first.instance.startswith("gateway-")
    assert load(MODEL="m", INSTANCE="g1").instance == "g1"


def test_all_problems_are_told_in_one_line() -> None:
    """Misspelt, missing and bad settings together, with a guess for the misspelt one."""
    with pytest.raises(ConfigError) as caught:
        load(PORTT="1", PORT="70000", LOG_LEVEL="loud")

    message = caught.value.message
    assert "\n" not in message
    for part in ("HR_GATEWAY_PORTT: no such setting, did you mean HR_GATEWAY_PORT?", "HR_GATEWAY_PORT: ",
                 "HR_GATEWAY_MODEL: required", "HR_GATEWAY_LOG_LEVEL: "):  # fmt: skip
        assert part in message


def test_a_bad_value_is_not_repeated() -> None:
    """It may be a secret that landed in the wrong variable."""
    with pytest.raises(ConfigError) as caught:
        load(MODEL="m", PORT="sk-secret")

    assert "sk-secret" not in caught.value.message


def test_variables_without_the_prefix_are_not_looked_at() -> None:
    """A cluster's own MODEL or PORT must not become ours, nor another service's settings."""
    environ = {"PORT": "1", "MODEL": "x", "HR_SCHEDULER_PORT": "2", "HR_GATEWAY_MODEL": "m"}

    config = load_config(Config, prefix=PREFIX, environ=environ)

    assert (config.port, config.model) == (8000, "m")


def test_a_secret_may_be_read_from_a_file(tmp_path: Path) -> None:
    """PREFIX_FIELD_FILE names it; the last newline is not part of the secret."""
    (tmp_path / "key").write_text("sk-1\n")

    assert load(MODEL="m", API_KEY_FILE=str(tmp_path / "key")).api_key.get_secret_value() == "sk-1"

    with pytest.raises(ConfigError, match="HR_GATEWAY_API_KEY_FILE: cannot read"):
        load(MODEL="m", API_KEY_FILE=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="set twice"):
        load(MODEL="m", API_KEY_FILE=str(tmp_path / "key"), API_KEY="sk-2")
    with pytest.raises(ConfigError, match="no such setting"):
        load(MODEL="m", PORT_FILE=str(tmp_path / "key"))


def test_described_settings_show_no_secret() -> None:
    """A secret is masked when it is set, and seen to be empty when it is not."""
    shown = describe(load(MODEL="m", API_KEY="sk-1"))

    assert "sk-1" not in str(shown)
    assert (shown["api_key"] != "", shown["nats_password"], shown["model"]) == (True, "", "m")


def test_settings_do_not_change() -> None:
    """A loaded config is frozen."""
    with pytest.raises(ValidationError):
        load(MODEL="m").port = 1
