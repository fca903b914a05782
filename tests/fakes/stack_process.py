"""`headrace up` with the fake engine: `python -m tests.fakes.stack_process OPTIONS`, OPTIONS as JSON.

The keys are those of UpOptions; the supervisor, the brokers and every other service are the real ones, and the workers,
too, where `worker_package` names them.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from deploy.local.options import UpOptions
from deploy.local.run_dir import State
from deploy.local.supervisor import supervise
from libs.runtime.process import run


async def main(options: dict[str, Any]) -> None:
    def on_ready(state: State) -> None:
        sys.stdout.write(f"ready {state.base_url}\n")
        sys.stdout.flush()

    for name in {"run_dir", "model_dir", "packed_dir"} & options.keys():
        options[name] = Path(options[name])
    options = {"worker_package": "tests.fakes.workers", **options}
    await supervise(UpOptions(**options), lambda what, done, of: None, on_ready)


def stop_with_the_test() -> None:
    """Its end closes our stdin, however it ended."""

    def wait() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    stop_with_the_test()
    run(lambda: main(json.loads(sys.argv[1])))
