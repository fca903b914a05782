"""`headrace up` with the fake engine: `python -m tests.fakes.stack_process OPTIONS`, OPTIONS as JSON.

The keys are those of UpOptions; the supervisor, the brokers and every other service are the real ones.
"""

import json
import sys
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

    for name in ("run_dir", "model_dir"):
        options[name] = Path(options[name])
    await supervise(UpOptions(worker_package="tests.fakes.workers", **options), lambda what, done, of: None, on_ready)


if __name__ == "__main__":
    run(lambda: main(json.loads(sys.argv[1])))
