"""What a worker process says of itself before it can work."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from libs.contracts import flow
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.run import GivenUp, Life
from libs.engine.worker.serve import Role

CONFIG = WorkerConfig(model="m", model_dir=Path("x"), pool="fd:3", link_token=SecretStr("t"), instance="w0")
ROLE = Role("decode_worker", "decode", flow.DECODE)


def test_a_loading_worker_tells_how_far_it_is() -> None:
    """It answers, and it is not ready."""
    life = Life(CONFIG, ROLE)

    life.note_progress(3, 30)

    status = life.status()
    assert (status.service, status.instance, status.ready) == ("decode_worker", "w0", False)
    assert status.detail == "loading, 3 of 30 layers"


def test_a_worker_told_to_stop_gives_up_loading() -> None:
    """At the next layer, not after the last."""
    life = Life(CONFIG, ROLE)
    life.is_unwanted.set()

    with pytest.raises(GivenUp):
        life.note_progress(3, 30)
