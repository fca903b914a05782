"""Whose key it is, at the door and in the request that goes on."""

from pathlib import Path

import pytest

from libs.contracts.errors import ConfigError
from libs.runtime import api_keys
from services.gateway.keys import LOOKED_AT_S, Keys
from tests.unit.gateway.conftest import running_gateway

API_KEY = "sk-of-the-settings"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _who(keys: Keys, key: str) -> tuple[str, int]:
    caller = keys.caller(key.encode())
    assert caller is not None
    return caller.tenant, caller.first_priority


def test_a_key_of_the_file_names_its_tenant_and_the_settings_key_the_default(tmp_path: Path) -> None:
    """Both work side by side; every other key is nobody's."""
    path = tmp_path / "keys.json"
    key, _ = api_keys.add(path, "acme", first_priority=3)
    keys = Keys(API_KEY, path)

    assert _who(keys, key) == ("acme", 3)
    assert _who(keys, API_KEY) == ("default", -100)
    assert keys.caller(b"") is keys.caller(b"sk-hr-other") is None


def test_a_changed_file_is_read_within_a_second(tmp_path: Path) -> None:
    """New keys open and old ones close without a restart; an unreadable file changes nothing."""
    path, clock = tmp_path / "keys.json", Clock()
    old, entry = api_keys.add(path, "old")
    keys = Keys(path=path, clock_s=clock)
    new, _ = api_keys.add(path, "new")
    api_keys.revoke(path, entry.id)
    assert _who(keys, old) == ("old", 0)

    clock.now_s += LOOKED_AT_S
    assert keys.caller(old.encode()) is None
    assert _who(keys, new) == ("new", 0)

    path.write_text("{")
    clock.now_s += LOOKED_AT_S
    assert _who(keys, new) == ("new", 0)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    """A door that nobody could open is a mistake, and one without a lock a worse one."""
    with pytest.raises(ConfigError, match="cannot be read"):
        Keys(path=tmp_path / "keys.json")
    assert Keys(path=None).are_needed is False


async def test_a_request_goes_on_under_its_keys_tenant(tmp_path: Path) -> None:
    """With the earliest priority that its key allows, when it asks for none; an earlier one is refused by name."""
    path = tmp_path / "keys.json"
    key, _ = api_keys.add(path, "acme", first_priority=3)
    async with running_gateway(keys_path=path) as gateway:
        call = gateway.call("/v1/completions", {"prompt": "hi"}, headers={"authorization": f"Bearer {key}"})
        request = await gateway.taken()
        refused = gateway.call(
            "/v1/completions", {"prompt": "hi", "priority": 2}, headers={"authorization": f"Bearer {key}"}
        )
        error = (await refused.json())["error"]
        unknown = gateway.call("/v1/completions", {"prompt": "hi"}, headers={"authorization": "Bearer sk-hr-no"})
        await unknown.whole()
        call.leave()

    assert (request.tenant, request.priority) == ("acme", 3)
    assert (refused.status, error["param"], unknown.status) == (400, "priority", 401)
