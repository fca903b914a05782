"""The secrets of a stack in containers."""

import json
from pathlib import Path

import pytest

from deploy.secrets import draw, write
from libs.contracts.flow import PERMISSIONS
from libs.runtime.prefix_library import USERS


def test_each_user_has_a_password_that_its_broker_knows() -> None:
    """One file each; no two secrets are equal, nor those of two draws."""
    drawn = draw()
    users = {user["user"]: user["password"] for user in json.loads(drawn["nats.conf"])["authorization"]["users"]}

    assert users == {user: drawn[f"nats_{user}"] for user in PERMISSIONS}
    assert not any(drawn[f"index_{user}"] in drawn["valkey.conf"] for user in USERS)
    alone = [value for name, value in drawn.items() if not name.endswith(".conf")]
    assert len({*alone, *draw().values()}) == len(alone) + len(drawn)


def test_nobody_else_reaches_the_folder_and_nothing_is_overwritten(tmp_path: Path) -> None:
    """Its files are mounted into containers one by one, whose users are others: they can read them."""
    folder = tmp_path / "secrets"
    write(folder, {"a": "1"})

    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "a").stat().st_mode & 0o777 == 0o644
    with pytest.raises(FileExistsError):
        write(folder, {"a": "2"})
    assert (folder / "a").read_text() == "1"
