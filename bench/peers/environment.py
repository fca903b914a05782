"""A virtual environment of a peer's own, and pip in it."""

import subprocess
import sys
from pathlib import Path


def make_environment(folder: Path) -> Path:
    """The environment's bin directory, made when it is not there."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin"


def pip(binaries: Path, *arguments: str | Path) -> None:
    """Run pip quietly. Raises CalledProcessError."""
    subprocess.run([binaries / "python", "-m", "pip", "--disable-pip-version-check", "-q", *arguments], check=True)
