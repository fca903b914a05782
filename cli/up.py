"""`headrace up`: find the model, check the options, run the supervisor here or in the background."""

import asyncio
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from cli.models import cache_root, resolve_model
from cli.output import banner, progress
from deploy.local.child import log_tail
from deploy.local.options import UpOptions, check_options
from deploy.local.run_dir import RunDir, State
from deploy.local.supervisor import supervise
from libs.contracts.errors import ConfigError, HeadraceError

EXIT_INTERRUPTED: Final = 130
POLL_S: Final = 0.05
SHOWN_LOG_LINES: Final = 6
DETACH_FLAG: Final = "--detach"


def run_up(model: str, options: UpOptions, *, detach: bool) -> int:
    """Bring a stack up and, unless detached, keep it until a signal. Returns the exit code; raises HeadraceError."""
    check_options(options)
    with ExitStack() as bars:
        report = bars.enter_context(progress())
        model_dir = resolve_model(model, cache_root(), lambda done, total: report("converting tensors", done, total))
        packed_dir = cache_root() / "packed"
        options = replace(options, model_dir=model_dir, model=model_dir.name, packed_dir=packed_dir)
        ready: list[State] = []

        def on_ready(state: State) -> None:
            bars.close()  # the bars would go on drawing
            ready.append(state)
            sys.stdout.write(banner(state))
            sys.stdout.flush()

        if detach:
            on_ready(_run_behind(RunDir(options.run_dir)))
        else:
            asyncio.run(supervise(options, report, on_ready))
    return 0 if ready else EXIT_INTERRUPTED


def _run_behind(run_dir: RunDir) -> State:
    """Start this same command again without --detach in a session of its own; its state once it is ready."""
    run_dir.create()
    arguments = [argument for argument in sys.argv[1:] if argument != DETACH_FLAG]
    log_path = run_dir.log("supervisor")
    with log_path.open("ab") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        return _await_ready(supervisor, run_dir, log_path)
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        raise


def _await_ready(supervisor: subprocess.Popen[bytes], run_dir: RunDir, log_path: Path) -> State:
    while supervisor.poll() is None:
        state = run_dir.read_state()
        if state and state.supervisor.pid == supervisor.pid and state.phase == "ready":
            return state
        time.sleep(POLL_S)
    lines = "\n  ".join(log_tail(log_path, SHOWN_LOG_LINES))
    kind = ConfigError if supervisor.returncode == 2 else HeadraceError
    raise kind(f"the stack did not come up; {log_path} ends:\n  {lines}")
