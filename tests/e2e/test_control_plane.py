"""Gateway, tokenizer and scheduler with what they declare and nothing else: no torch, no numpy."""

import asyncio
import os
import secrets
import subprocess
import sys
import time
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.requirements import Requirement
from pydantic import SecretStr

from cli.models import DEFAULT_NAME, cache_root, resolve_model
from libs.contracts import flow
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.link_client import CellLeader
from libs.engine.worker.serve import Role, Worker
from tests.e2e.client import complete
from tests.fakes.engine import FakeEngine, FakePool, expected, fake_loaded
from tests.integration.servers import NatsServer, free_port
from tests.unit.scheduler.cell import params, prompt

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
MODEL, TOKEN = "small", "link-token"
READY_S = 30.0
MAX_MODEL_LEN = 256


def declared_files() -> Iterator[Path]:
    """Top-level files of the project's base dependencies and of all that these need."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    seen = set[str]()
    while wanted:
        requirement = Requirement(wanted.pop())
        name = requirement.name.lower().replace("_", "-")
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = distribution(name)
        wanted += found.requires or []
        yield from {Path(str(found.locate_file(file.parts[0]))) for file in found.files or [] if file.parts[0] != ".."}


def environment(folder: Path) -> dict[str, str]:
    """Variables under which `python -S` sees the declared packages, the project and the standard library."""
    for path in declared_files():
        link = folder / path.name
        if path.name != "__pycache__" and not link.exists():
            link.symlink_to(path)
    return {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": os.defpath}


def start(service: str, environ: dict[str, str], **settings: object) -> "subprocess.Popen[bytes]":
    own = {f"HR_{service.upper()}_{key.upper()}": str(value) for key, value in settings.items()}
    return subprocess.Popen([sys.executable, "-S", "-m", f"services.{service}"], env=environ | own, cwd=ROOT)


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(timeout=10)


@asynccontextmanager
async def fake_worker(nats: NatsServer) -> AsyncIterator[None]:
    """A decode worker of this process: what it computes with is not the question here."""
    config = WorkerConfig(model=MODEL, model_dir=ROOT, pool="unused", link_token=SecretStr(TOKEN), instance="d0")
    async with nats.connect("decode_worker") as bus:
        role = Role("decode_worker", "decode", flow.DECODE)
        pool = FakePool(64)
        worker = Worker(
            config, role, fake_loaded(pool, FakeEngine(pool)), bus, CellLeader(await bus.cells(), MODEL, "c0")
        )
        told_to_stop = asyncio.Event()
        running = asyncio.create_task(worker.run(told_to_stop, 1.0))
        try:
            yield
        finally:
            told_to_stop.set()
            await running


async def test_the_control_plane_serves_without_torch(tmp_path: Path) -> None:
    """Each of the three starts with its declared packages alone, and together they serve a request."""
    links = tmp_path / "links"
    links.mkdir()
    environ = environment(links)
    for absent in ("torch", "numpy", "safetensors"):
        probe = subprocess.run([sys.executable, "-S", "-c", f"import {absent}"], env=environ, capture_output=True)
        assert b"ModuleNotFoundError" in probe.stderr
    nats = NatsServer(tmp_path)
    port = free_port()
    model_dir = resolve_model(DEFAULT_NAME, cache_root(), lambda done, total: None)
    base_url = f"http://127.0.0.1:{port}/v1"
    limits = {"model_dir": model_dir, "max_model_len": MAX_MODEL_LEN}
    own: dict[str, dict[str, Any]] = {
        "scheduler": {"link_token": TOKEN, "role": "hybrid"},
        "tokenizer": {**limits, "hash_key": secrets.token_hex(16)},
        "gateway": {**limits, "port": port},
    }
    with ExitStack() as processes:
        processes.callback(nats.stop)
        for service, settings in own.items():
            wire = {"nats_url": nats.url, "nats_user": service, "nats_password": nats.passwords[service]}
            processes.callback(stop, start(service, environ, model=MODEL, **wire, **settings))
        async with fake_worker(nats):
            await ready(port)
            body = {"model": MODEL, "prompt": prompt(20), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
            answer = await complete(base_url, {**body, "return_token_ids": True})

    greedy = params(8, temperature=0.0, ignore_eos=True)
    assert tuple(answer["choices"][0]["token_ids"]) == expected(prompt(20), greedy)[0]


async def ready(port: int) -> None:
    deadline_s = time.monotonic() + READY_S
    async with httpx.AsyncClient() as client:
        while True:
            try:
                if (await client.get(f"http://127.0.0.1:{port}/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline_s, "the control plane did not become ready"
            await asyncio.sleep(0.05)
