"""How the default model gets into a stack's volume."""

from pathlib import Path

import pytest

from deploy.containers.model import copy

NAME = "a-model"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder as the image has it."""
    model = tmp_path / "image" / NAME
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    return model.parent


def test_a_model_is_copied_once(tmp_path: Path, image: Path) -> None:
    """What lies there by that name is its owner's."""
    volume = tmp_path / "volume"
    volume.mkdir()
    copy(image, volume, NAME)
    assert (volume / NAME / "config.json").read_text() == "{}"

    (volume / NAME / "config.json").write_text("mine")
    copy(image, volume, NAME)

    assert (volume / NAME / "config.json").read_text() == "mine"
    assert [entry.name for entry in volume.iterdir()] == [NAME]


def test_another_model_must_be_there(tmp_path: Path, image: Path) -> None:
    """Then nothing is copied, and nothing written: the folder may be one that this process only reads."""
    (tmp_path / "mine" / "other").mkdir(parents=True)
    copy(image, tmp_path / "mine", "other")
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["other"]

    with pytest.raises(SystemExit, match="no model 'third'"):
        copy(image, tmp_path / "mine", "third")
