"""Keys are made once, kept as hashes, found for their tenant, and taken back."""

import re
from pathlib import Path

import pytest

from libs.contracts.errors import ConfigError
from libs.runtime import api_keys


def test_a_key_is_found_for_its_tenant_and_never_kept(tmp_path: Path) -> None:
    """The file is its owner's alone and holds a hash; a letter more or less is nobody's key."""
    path = tmp_path / "new" / "keys.json"
    key, entry = api_keys.add(path, "acme", first_priority=-5)

    assert re.fullmatch("sk-hr-[a-z2-7]{26}", key)
    assert key not in path.read_text() and path.stat().st_mode & 0o777 == 0o600
    keys = api_keys.read(path)
    assert keys.find(key.encode()) == entry
    assert (entry.tenant, entry.first_priority) == ("acme", -5)
    assert keys.find(key[:-1].encode()) is keys.find(b"") is keys.find(f"{key}x".encode()) is None


def test_a_second_key_leaves_the_first_alone(tmp_path: Path) -> None:
    """Each has an id of its own, and taking back one takes back one."""
    path = tmp_path / "keys.json"
    (one, first), (two, second) = api_keys.add(path, "a"), api_keys.add(path, "b")
    api_keys.revoke(path, first.id)

    keys = api_keys.read(path)
    assert (keys.find(one.encode()), keys.find(two.encode())) == (None, second)
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.json"]


def test_equal_keys_of_two_files_have_different_hashes(tmp_path: Path) -> None:
    """A hash that is known from one file finds nothing in another."""
    files = [tmp_path / "one", tmp_path / "two"]
    for path in files:
        api_keys.add(path, "a")
    one, two = (api_keys.read(path).digest(b"key") for path in files)
    assert one != two


@pytest.mark.parametrize("tenant", ["", "a b", "../x", "é", "-a", "a" * 65])
def test_a_tenant_has_a_plain_name(tenant: str, tmp_path: Path) -> None:
    """It is written into logs and traces; nothing is left of one that was refused."""
    with pytest.raises(ConfigError, match="tenant"):
        api_keys.add(tmp_path / "keys.json", tenant)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", '{"salt": ""}', '{"salt": "xy"}', '{"salt": "00", "keys": [1]}', "\xff"])
def test_what_is_no_key_file_is_refused(text: str, tmp_path: Path) -> None:
    """Whoever reads it is told which file, and nothing of what is in it."""
    path = tmp_path / "keys.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match="is no key file"):
        api_keys.read(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        api_keys.read(tmp_path / "none")


def test_an_unknown_id_is_refused(tmp_path: Path) -> None:
    """A slip of the pen takes no other key back."""
    path = tmp_path / "keys.json"
    api_keys.add(path, "a")
    with pytest.raises(ConfigError, match="no key k-1"):
        api_keys.revoke(path, "k-1")
