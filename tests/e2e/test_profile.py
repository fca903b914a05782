"""Where the time of real steps goes."""

import asyncio
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from cli.profile import show_profile
from libs.contracts.messages import WorkerProfile
from tests.e2e.client import complete
from tests.e2e.conftest import Stack

pytestmark = pytest.mark.e2e

SECONDS = 0.6


async def test_the_time_of_a_busy_worker_is_told_by_name(hybrid: Stack, tmp_path: Path) -> None:
    """Nearly all of it, the kernels' part by op; as JSON and as a flame graph beside it."""
    flame = tmp_path / "flame.svg"
    body = {"model": hybrid.model, "prompt": [5] * 20, "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    work = asyncio.create_task(complete(hybrid.base_url, body))

    text = await asyncio.to_thread(show_profile, hybrid.run_dir.path, SECONDS, as_json=True, flame_path=flame)
    await work

    profiles = msgspec.json.decode(text, type=list[WorkerProfile])
    busy = next(profile for profile in profiles if profile.worker.startswith("decode_worker"))
    laps = {lap.path: lap.lap_ns for lap in busy.laps}
    assert busy.steps > 0 and busy.duration_ns / 1e9 > SECONDS / 2
    assert sum(laps.values()) >= 0.95 * busy.duration_ns
    assert {"kernels;qkv", "kernels;attention", "kernels;head", "python;rows"} <= laps.keys()
    drawn = ElementTree.fromstring(flame.read_text())
    titles = [title.text or "" for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("attention: ") for title in titles)
