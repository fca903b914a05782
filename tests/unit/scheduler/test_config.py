"""The scheduler's settings."""

import pytest

from libs.contracts.errors import ConfigError
from libs.runtime.config import load_config
from services.scheduler.config import Config
from services.scheduler.eviction import Caching

NEEDED = {"HR_SCHEDULER_MODEL": "m", "HR_SCHEDULER_LINK_TOKEN": "t"}


def test_a_model_and_a_token_are_enough() -> None:
    """Everything else has a default that serves a small machine."""
    policy = load_config(Config, prefix="HR_SCHEDULER_", environ=NEEDED).policy
    assert (policy.cell, policy.model, policy.role) == ("c0", "m", "auto")
    assert (policy.max_chunk_tokens, policy.chunk_target_s, policy.itl_target_s) == (512, 0.25, 0.05)
    assert policy.max_running == 64
    assert policy.caching == Caching(is_on=True, floor_share=0.1, ceiling_share=0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROLE", "both"),
        ("LINK_TOKEN", ""),
        ("MAX_RUNNING", "0"),
        ("CHUNK_TARGET_MS", "0"),
        ("MAX_CHUNK", "1"),
        ("CACHE_FLOOR", "0.6"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str) -> None:
    """The process does not start with it."""
    with pytest.raises(ConfigError, match=f"HR_SCHEDULER_{name}"):
        load_config(Config, prefix="HR_SCHEDULER_", environ=NEEDED | {f"HR_SCHEDULER_{name}": value})


def test_a_container_announces_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers elsewhere dial what the cell's record says; a host whose name has no address says so at its start."""
    environ = NEEDED | {"HR_SCHEDULER_LINK_HOST": "auto"}
    monkeypatch.setattr("socket.gethostname", lambda: "127.0.0.9")
    assert load_config(Config, prefix="HR_SCHEDULER_", environ=environ).link_host == "127.0.0.9"
    assert load_config(Config, prefix="HR_SCHEDULER_", environ=NEEDED).link_host == "127.0.0.1"

    monkeypatch.setattr("socket.gethostname", lambda: "no-such-host.invalid")
    with pytest.raises(ConfigError, match="LINK_HOST"):
        load_config(Config, prefix="HR_SCHEDULER_", environ=environ)
