"""The only module that reads the environment; every other one is handed a frozen Config."""

import difflib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from libs.contracts.errors import ConfigError

C = TypeVar("C", bound="ServiceConfig")

FILE_SUFFIX = "_FILE"  # PREFIX_FIELD_FILE names a file that holds a secret field's value
MASK = "********"
SETTINGS = "HR_"


class ServiceConfig(BaseSettings):
    """What every service can be told. A service's own Config adds fields; `load_config` alone builds it."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)

    instance: str = ""  # empty: "<service>-<8 hex digits>", drawn at start
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: SecretStr = SecretStr("")
    otlp_endpoint: str = ""  # empty: no export
    otlp_sample_ratio: float = Field(default=1.0, ge=0, le=1)  # of requests exported, by trace id; the gateway decides
    trace_dir: str = ""  # where this process keeps its trace ring, 16 MiB at most; empty: none
    health_file: str = ""  # gets "ready", or why not, every second, for a container's health check; empty: none
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    drain_s: float = 5.0  # how long a stopping service may finish what it has
    failpoints: str = ""  # faults planted for a test; libs/runtime/failpoints.py says how they are written
    failpoints_file: str = ""  # a file with more of them, read again when it changes

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what load_config hands over: unprefixed variables such as PORT must never become settings."""
        return (init_settings,)


def load_config(kind: type[C], *, prefix: str, environ: Mapping[str, str] | None = None) -> C:
    """Build `kind` from PREFIX_FIELD variables, e.g. prefix "HR_GATEWAY_".

    Raises ConfigError with all problems in one line: unknown PREFIX_* variables (a misspelt setting must not fall back
    to a default), unreadable secret files, bad and missing values. Values never appear in it: one may be a secret.
    """
    env = os.environ if environ is None else environ
    names = _variables(kind, prefix)
    problems, values = [], dict[str, Any]()
    for name in sorted(name for name in env if name.startswith(prefix)):
        field = names.get(name)
        if field is None:
            problems.append(f"{name}: no such setting{_guess(name, names)}")
        elif field in values:
            problems.append(f"{name}: set twice, by value and by file")
        else:
            try:
                values[field] = _read(env[name]) if name == f"{prefix}{field}{FILE_SUFFIX}".upper() else env[name]
            except (OSError, UnicodeDecodeError):
                problems.append(f"{name}: cannot read this file")
    values.setdefault("instance", "")
    values["instance"] = values["instance"] or f"{_service(prefix)}-{secrets.token_hex(4)}"
    try:
        config = kind(**values)
    except ValidationError as error:
        problems += [_problem(prefix, dict(item)) for item in error.errors(include_input=False, include_url=False)]
    if problems:
        raise ConfigError("; ".join(problems))
    return config


def without_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a process that is no service: it has no setting, of which some are secrets."""
    env = os.environ if environ is None else environ
    return {name: value for name, value in env.items() if not name.startswith(SETTINGS)}


def describe(config: BaseSettings) -> dict[str, str]:
    """Every setting as text for the log at start; secrets are masked when set."""
    return {name: _masked(getattr(config, name)) for name in type(config).model_fields}


def _masked(value: object) -> str:
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    return str(value)


def _variables(kind: type[ServiceConfig], prefix: str) -> dict[str, str]:
    """Variable name → field; a secret field has a second variable that names a file."""
    names = {}
    for field, spec in kind.model_fields.items():
        names[f"{prefix}{field}".upper()] = field
        if spec.annotation is SecretStr:
            names[f"{prefix}{field}{FILE_SUFFIX}".upper()] = field
    return names


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").removesuffix("\n")


def _guess(name: str, known: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]}?" if close else ""


def _service(prefix: str) -> str:
    return prefix.removeprefix("HR_").strip("_").lower()


def _problem(prefix: str, item: dict[str, Any]) -> str:
    where = "_".join(str(part) for part in item["loc"]).upper()
    text = "required" if item["type"] == "missing" else item["msg"].removeprefix("Value error, ")
    return f"{prefix}{where}: {text}" if where else text
