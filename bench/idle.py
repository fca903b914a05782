"""CPU seconds that all processes of an idle stack use: `python -m bench.idle --run-dir DIR [--seconds 60]`."""

import argparse
import json
import time
from pathlib import Path

import psutil


def cpu_seconds(processes: list[psutil.Process]) -> dict[str, float]:
    return {f"{p.pid} {' '.join(p.cmdline()[:4])[-60:]}": sum(p.cpu_times()[:2]) for p in processes}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--run-dir", type=Path, required=True)
    arguments.add_argument("--seconds", type=float, default=60.0)
    given = arguments.parse_args()
    supervisor = psutil.Process(json.loads((given.run_dir / "state.json").read_text())["pid"])
    processes = [supervisor, *supervisor.children(recursive=True)]
    before = cpu_seconds(processes)
    time.sleep(given.seconds)
    used = {name: after - before[name] for name, after in cpu_seconds(processes).items()}
    for name, seconds in sorted(used.items(), key=lambda item: -item[1]):
        print(f"{seconds:6.2f} s  {name}")
    print(f"{sum(used.values()):6.2f} s of CPU in {given.seconds:.0f} s over {len(processes)} processes")


if __name__ == "__main__":
    main()
