"""Finds the directory of the model that `--model` names, converting or fetching it first where that is needed."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from libs.contracts.errors import ConfigError

DEFAULT_NAME: Final = "smollm2"
HUB_ID: Final = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")  # and a branch, tag or commit
HUB_FILES: Final = ("*.json", "*.safetensors", "*.jinja")
HUB_OTHERS: Final = ("*/*", "consolidated*")  # the same weights in other forms

Progress = Callable[[int, int], None]  # done, of how many


def cache_root() -> Path:
    """Where converted models are kept."""
    return Path.home() / ".cache" / "headrace"


def resolve_model(model: str, cache: Path, progress: Progress) -> Path:
    """The directory of `model`: a directory, the default's name, a GGUF file or a Hugging Face id, tried in this order.

    Raises ConfigError when it is none of these, or cannot be had.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve()
    if model.lower() == DEFAULT_NAME:
        return _default_model(cache, progress)
    if path.suffix.lower() == ".gguf":
        return _converted(path, cache, progress)
    if found := HUB_ID.fullmatch(model):
        return _from_hub(found[1], found[2])
    raise ConfigError(
        f"no model {model!r}; --model takes a directory, a .gguf file, a Hugging Face id, or {DEFAULT_NAME}"
    )


def served_name(model: str, model_dir: Path) -> str:
    """What a model is called unless told otherwise: its id on the Hub, or its directory's name."""
    found = None if Path(model).expanduser().is_dir() else HUB_ID.fullmatch(model)
    return found[1] if found else model_dir.name


def _default_model(cache: Path, progress: Progress) -> Path:
    from libs.engine.gguf_convert import ensure_default_model
    from libs.engine.gguf_file import GgufError

    try:
        return ensure_default_model(cache, progress=progress)
    except FileNotFoundError as error:
        raise ConfigError(
            "the default model is not installed; `make up` installs it, or name another by --model"
        ) from (error)
    except (GgufError, OSError) as error:
        raise ConfigError(f"cannot convert the default model: {error}") from error


def _converted(gguf: Path, cache: Path, progress: Progress) -> Path:
    from libs.engine.gguf_convert import convert_gguf
    from libs.engine.gguf_file import GgufError

    try:
        stat = gguf.stat()
        identity = f"{gguf.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
        model_dir = cache / "models" / hashlib.sha256(identity.encode()).hexdigest()[:12] / gguf.stem
        return model_dir if model_dir.is_dir() else convert_gguf(gguf, model_dir, progress=progress)
    except (GgufError, OSError) as error:
        raise ConfigError(f"cannot convert {gguf}: {error}") from error


def _from_hub(model: str, revision: str | None) -> Path:
    """The snapshot in the Hub's own cache: configuration, tokenizer and safetensors, neither code nor pickles."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise ConfigError(f"{model} must be downloaded, which takes: pip install huggingface_hub") from error
    try:
        return Path(
            snapshot_download(
                model, revision=revision, allow_patterns=list(HUB_FILES), ignore_patterns=list(HUB_OTHERS)
            )
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"cannot download {model} ({reason}); offline, give a directory or a .gguf file") from error
