"""`headrace up`: find the model, check the options, run the supervisor here or in the background."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from cli.models import cache_root, resolve_model, served_name
from cli.output import banner, progress
from deploy.local.child import log_tail
from deploy.local.options import NamedModel, UpOptions, check_options
from deploy.local.run_dir import RunDir, State
from deploy.local.supervisor import supervise
from libs.contracts.errors import ConfigError, HeadraceError

EXIT_INTERRUPTED: Final = 130
POLL_S: Final = 0.05
SHOWN_LOG_LINES: Final = 6
DETACH_FLAG: Final = "--detach"


def run_up(models: Sequence[str], names: Sequence[str], options: UpOptions, *, detach: bool) -> int:
    """Bring a stack up and, unless detached, keep it until a signal. Returns the exit code; raises HeadraceError.

    Args:
        models: as --model has them; the first is what clients are shown.
        names: what they are served under, "name" or "name,alias,…"; for models without one see `served_name`.
    """
    check_options(options)
    with ExitStack() as bars:
        report = bars.enter_context(progress())

        def convert(done: int, total: int) -> None:
            report("converting tensors", done, total)

        model_dirs = [resolve_model(model, cache_root(), convert) for model in models]
        defaults = [served_name(model, model_dir) for model, model_dir in zip(models, model_dirs, strict=True)]
        first, *others = named_models(model_dirs, defaults, names)
        options = replace(
            options,
            model_dir=first.model_dir,
            model=first.name,
            aliases=first.aliases,
            more_models=tuple(others),
            packed_dir=cache_root() / "packed",
        )
        check_options(options)
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


def named_models(model_dirs: Sequence[Path], defaults: Sequence[str], names: Sequence[str]) -> list[NamedModel]:
    """Each directory with its names, or its default one.

    Raises: ConfigError for more names than models, and for an empty one.
    """
    if len(names) > len(model_dirs):
        raise ConfigError(f"--served-model-name {names[len(model_dirs)]!r} is one more than there are models")
    named = []
    for model_dir, default, text in zip_longest(model_dirs, defaults, names):
        name, *aliases = [default] if text is None else [part.strip() for part in text.split(",")]
        if not all((name, *aliases)):
            raise ConfigError(f"--served-model-name {text!r} has an empty name")
        named.append(NamedModel(name, model_dir, tuple(aliases)))
    return named


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
