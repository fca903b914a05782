"""`headrace up`, `down` and `status` on the real stack: it answers, it stops, and nothing of it is ever left."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.local.options import BROKERS, SERVICES
from tests.e2e.client import until
from tests.e2e.conftest import Stack, StackFactory, processes_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def headrace(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


def own_stack(folder: Path) -> Stack:
    """A stack that the test may kill."""
    return Stack(folder / "run", role="hybrid")


def test_the_printed_snippet_tells_the_capital_of_france(hybrid: Stack) -> None:
    """What `headrace up` prints can be pasted as it is, and the model's answer is right."""
    snippet = hybrid.output[hybrid.output.index("from openai") :]
    code = "\n".join(line.removeprefix("  ") for line in snippet.splitlines())

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


def test_the_banner_tells_url_model_and_capacity(hybrid: Stack) -> None:
    """A user sees where to go, and how many tokens fit."""
    blocks, block_tokens = hybrid.state().kv_blocks, hybrid.state().block_tokens

    assert hybrid.base_url in hybrid.output
    assert hybrid.model in hybrid.output
    assert f"{blocks:,} blocks x {block_tokens} tokens = {blocks * block_tokens:,} tokens" in hybrid.output


def test_status_as_json(hybrid: Stack) -> None:
    """base_url, model, every service with pid, port and readiness, the blocks and the queue."""
    done = headrace("status", "--json", "--run-dir", str(hybrid.run_dir.path))

    status = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert status["base_url"] == hybrid.base_url
    assert status["model"] == hybrid.model
    assert {service["service"] for service in status["services"]} == {*SERVICES, *BROKERS}
    assert all(service["ready"] and psutil.pid_exists(service["pid"]) for service in status["services"])
    gateway = next(service for service in status["services"] if service["service"] == "gateway")
    assert f":{gateway['port']}/" in status["base_url"]
    blocks = status["blocks"]
    assert blocks["free"] + blocks["cached"] + blocks["held"] + blocks["freeing"] == blocks["total"]
    assert blocks["total"] == hybrid.state().kv_blocks
    assert {"waiting", "running"} <= set(status)


def test_status_for_people(hybrid: Stack) -> None:
    """Without --json a table tells the same."""
    done = headrace("status", "--run-dir", str(hybrid.run_dir.path))

    assert done.returncode == 0, done.stderr
    assert "gateway-0" in done.stdout
    assert "free" in done.stdout


def test_nothing_secret_is_in_an_argument(hybrid: Stack) -> None:
    """Command lines, which any user may read, hold no password."""
    tree = psutil.Process(hybrid.process.pid)
    lines = [" ".join(process.cmdline()) for process in [tree, *tree.children(recursive=True)]]

    trials = [line for line in lines if "grammar_process" in line]  # a tokenizer's, from its first grammar on
    assert len(lines) - len(trials) == 1 + len(SERVICES) + len(BROKERS)
    assert not any(hybrid.state().nats_password in line for line in lines)


async def test_a_service_that_dies_is_started_again(stack: StackFactory) -> None:
    """A killed tokenizer comes back under another pid, and requests are answered again."""
    running = stack(role="hybrid")
    (killed,) = running.processes("tokenizer")
    killed.kill()

    def tokenizer(status: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = next(s for s in status["services"] if s["service"] == "tokenizer")
        return found

    def is_back() -> bool:
        line = tokenizer(running.status())
        return bool(line["ready"]) and line["pid"] != killed.pid

    await until(is_back, within_s=20, what=f"another tokenizer: {running.status()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_in_5_s(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM leave no process, no credentials, no socket, but what explains the run; exit code 0."""
    running = own_stack(tmp_path)
    pids = [child.pid for child in running.state().children]

    took_s = running.stop(number)

    assert took_s < 5
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert sorted(path.name for path in running.run_dir.path.iterdir()) == ["lock", "logs", "traces"]


async def test_a_killed_supervisor_takes_its_children_with_it(tmp_path: Path) -> None:
    """All children are gone within 1 s, and the next start in the same directory works."""
    running = own_stack(tmp_path)
    running.kill()

    await until(lambda: processes_of(running.run_dir.path) == [], within_s=1, what="no process is left")
    again = own_stack(tmp_path)
    assert all(service["ready"] for service in again.status()["services"])
    again.stop()


def test_detached_it_runs_on_until_down(tmp_path: Path) -> None:
    """--detach returns when the stack is ready; down stops it, and is content to find nothing."""
    run_dir = str(tmp_path / "run")
    up = headrace("up", "--detach", "--port", "0", "--kv-blocks", "256", "--run-dir", run_dir)
    assert up.returncode == 0, up.stdout + up.stderr
    assert "/v1" in up.stdout
    second = headrace("up", "--port", "0", "--run-dir", run_dir)
    status = headrace("status", "--json", "--run-dir", run_dir)

    down = headrace("down", "--run-dir", run_dir)
    nothing = headrace("down", "--run-dir", run_dir)
    no_status = headrace("status", "--json", "--run-dir", run_dir)

    assert second.returncode == 2 and "already runs" in second.stderr
    assert status.returncode == 0 and json.loads(status.stdout)["phase"] == "ready"
    assert (down.returncode, nothing.returncode, no_status.returncode) == (0, 0, 1)
    assert processes_of(Path(run_dir)) == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--host", "0.0.0.0"), "HR_GATEWAY_API_KEY"),
        (("--model", "nowhere"), "nowhere"),
        (("--block-tokens", "8"), "16, 32, 64"),
        (("--set", "gateway.nonsense=1"), "no such setting"),
        (("--kv-blocks", "9999999"), "GiB"),
        (("--max-model-len", "9999999"), "limit"),
    ],
)
def test_what_cannot_work_exits_2_with_a_hint(tmp_path: Path, arguments: tuple[str, ...], hint: str) -> None:
    """One or a few lines on stderr, no traceback, nothing left running."""
    done = headrace("up", "--port", "0", "--run-dir", str(tmp_path / "run"), *arguments, HR_GATEWAY_API_KEY="")

    assert done.returncode == 2, done.stdout + done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert processes_of(tmp_path / "run") == []
