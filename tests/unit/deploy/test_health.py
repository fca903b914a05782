"""Health as a container's check sees it."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from deploy.images.health import problem
from libs.contracts.messages import ServiceStatus
from libs.runtime import status


def test_a_check_knows_ready_from_alive_from_still(tmp_path: Path) -> None:
    """An old file is that of a process that stands still, whatever it says."""
    path = tmp_path / "health"
    assert problem("alive", str(path))
    path.write_text("ready")
    assert not problem("ready", str(path)) and not problem("alive", str(path))
    path.write_text("no cell serves it")
    assert problem("ready", str(path)) == "no cell serves it" and not problem("alive", str(path))
    os.utime(path, (1, 1))
    assert "said nothing" in problem("alive", str(path))


def test_a_port_that_nobody_listens_at_is_a_problem() -> None:
    """And one that somebody listens at is none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert not problem("port", port)
    assert problem("port", port)


async def test_a_service_writes_its_state_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and later, as long as its event loop runs."""
    monkeypatch.setattr(status, "BEAT_S", 0.001)
    said = ["loading"]
    path = tmp_path / "health"
    status.beat(path, lambda: said[0])
    assert path.read_text() == "loading"

    said[0] = "ready"

    async with asyncio.timeout(10):
        while path.read_text() != "ready":
            await asyncio.sleep(0)


def test_a_status_is_ready_or_says_why_not() -> None:
    """Even where the service itself does not."""
    assert status.describe(ServiceStatus("s", "i", 1, 0, True, "standing by")) == "ready"
    assert status.describe(ServiceStatus("s", "i", 1, 0, False, "loading")) == "loading"
    assert status.describe(ServiceStatus("s", "i", 1, 0, False, "")) == "not ready"
