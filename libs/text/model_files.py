"""Reads what the text side needs from a Hugging Face model directory: tokenizer, template, special tokens, ends."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from libs.contracts.errors import ConfigError
from libs.contracts.token_rules import MAX_REPETITION, MIN_REPETITION

MAX_FILE_BYTES: Final = 128 << 20
NUMBER: Final = int | float
SAMPLING_BOUNDS: Final = MappingProxyType(
    {
        "temperature": (0.0, 2.0, NUMBER),
        "top_p": (1e-9, 1.0, NUMBER),
        "top_k": (-1, (1 << 31) - 1, int),
        "min_p": (0.0, 1.0, NUMBER),
        "repetition_penalty": (MIN_REPETITION, MAX_REPETITION, NUMBER),
    }
)
SPECIAL_ROLES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Raw parts of a model directory.

    `eos_ids` are the ends the model declares (generation_config.json, else config.json); `special_tokens` maps a
    role such as "bos_token" to its text; `sampling` holds the parameters that generation_config.json recommends, by the
    names that clients use; `rows` is how many ids the model's matrices have, 0 where config.json does not say; `digest`
    is stable for equal tokenizer.json and template.
    """

    tokenizer_json: str
    chat_template: str | None
    special_tokens: Mapping[str, str]
    eos_ids: frozenset[int]
    digest: str
    rows: int = 0
    sampling: Mapping[str, float] = field(default_factory=dict)


def read_model_files(model_dir: Path) -> ModelFiles:
    """Read tokenizer.json (required), tokenizer_config.json, chat_template.jinja, generation_config.json, config.json.

    Raises: ConfigError when a required file is missing or a file cannot be understood.
    """
    tokenizer_json = _read_text(model_dir / "tokenizer.json")
    if tokenizer_json is None:
        raise ConfigError(f"{model_dir} has no tokenizer.json")
    config = _read_json(model_dir / "tokenizer_config.json")
    chat_template = _read_text(model_dir / "chat_template.jinja") or _template(config.get("chat_template"))
    return ModelFiles(
        tokenizer_json=tokenizer_json,
        chat_template=chat_template,
        special_tokens=MappingProxyType(_special_tokens(config)),
        eos_ids=_eos_ids(model_dir),
        digest=_digest(tokenizer_json, chat_template or ""),
        rows=_rows(_read_json(model_dir / "config.json").get("vocab_size")),
        sampling=MappingProxyType(_sampling(_read_json(model_dir / "generation_config.json"))),
    )


def _digest(*parts: str) -> str:
    """SHA-256 over the parts, each with its length in front, so that text cannot move from one into the next."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def _template(value: Any) -> str | None:
    """A template is one string, or a list of named ones of which "default" is for chats."""
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    if value is not None and not isinstance(value, str):
        raise ConfigError("chat_template is neither text nor a list of named texts")
    return value


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for role in SPECIAL_ROLES:
        value = config.get(role)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[role] = text
    return found


def _rows(vocab_size: Any) -> int:
    """What is no such number is for the engine to refuse."""
    return vocab_size if isinstance(vocab_size, int) and not isinstance(vocab_size, bool) and vocab_size > 0 else 0


def _sampling(generation: dict[str, Any]) -> dict[str, float]:
    """What it recommends. Raises ConfigError for a value out of bounds: every request would be refused for it."""
    found: dict[str, float] = {}
    for name, (low, high, kind) in SAMPLING_BOUNDS.items():
        value = generation.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise ConfigError(f"generation_config.json: {name} must be from {low:g} to {high:g}, not {value!r}"[:200])
        found[name] = value
    return found


def _eos_ids(model_dir: Path) -> frozenset[int]:
    for name in ("generation_config.json", "config.json"):
        value = _read_json(model_dir / name).get("eos_token_id")
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(token_id, int) and token_id >= 0 for token_id in ids):
            raise ConfigError(f"{name}: eos_token_id is not an id or a list of ids")
        if ids:
            return frozenset(ids)
    return frozenset()


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is no such file."""
    text = _read_text(path)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return value


def _read_text(path: Path) -> str | None:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8") from error
