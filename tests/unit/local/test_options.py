"""What `headrace up` accepts."""

from pathlib import Path

import pytest

from deploy.local.options import SERVICES, UpOptions, check_options, parse_overrides
from libs.contracts.errors import ConfigError


def options(**changes: object) -> UpOptions:
    return UpOptions(run_dir=Path("run"), **changes)  # type: ignore[arg-type]


def test_settings_are_sorted_by_service() -> None:
    """Each service gets its own settings; values may hold anything, equals signs too."""
    found = parse_overrides(["gateway.port=1", "scheduler.max_running=2", "gateway.model=a=b.c"])

    assert found == {"gateway": {"port": "1", "model": "a=b.c"}, "scheduler": {"max_running": "2"}}


def test_a_star_sets_every_service() -> None:
    """`*` reaches all services, and a later setting of one wins there."""
    found = parse_overrides(["*.log_level=debug", "gateway.log_level=info"])

    assert {service: settings["log_level"] for service, settings in found.items()} == {
        service: "info" if service == "gateway" else "debug" for service in SERVICES
    }


@pytest.mark.parametrize("setting", ["gateway", "gateway.port", "port=1", "gatway.port=1", "gateway.=1", "nats.port=1"])
def test_a_setting_that_goes_nowhere_is_refused(setting: str) -> None:
    """No misspelt setting is dropped in silence."""
    with pytest.raises(ConfigError):
        parse_overrides([setting])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.4", "example.org"])
def test_strangers_need_a_key(host: str) -> None:
    """A host that other machines reach is served only with an API key."""
    with pytest.raises(ConfigError, match="HR_GATEWAY_API_KEY"):
        check_options(options(host=host))
    check_options(options(host=host, api_key="k"))
    with_keys = options(host=host, overrides={"gateway": {"keys_path": "keys.json"}})
    check_options(with_keys)
    assert with_keys.needs_key


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_needs_no_key(host: str) -> None:
    """Loopback is open."""
    check_options(options(host=host))


@pytest.mark.parametrize(
    "wrong", [{"dtype": "float16"}, {"role": "both"}, {"block_tokens": 8}, {"role": "disaggregated", "prefill": 0}]
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    """The choice is named before anything is started."""
    with pytest.raises(ConfigError):
        check_options(options(**wrong))
