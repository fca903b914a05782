"""Gateway settings. Units are in the names; there are no others."""

import ipaddress
import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from libs.contracts.flow import subject_token
from libs.runtime.config import ServiceConfig
from services.gateway.backoff import WRONG_KEYS
from services.gateway.cors import parse_origins

MAX_MODEL_LEN_TOKENS = 1 << 24


class ModelSettings(BaseModel):
    """One more model behind the same doors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(min_length=1)
    model_dir: Path
    max_model_len: int = Field(ge=2, le=MAX_MODEL_LEN_TOKENS)
    aliases: tuple[str, ...] = ()


class Config(ServiceConfig):
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    grpc_port: int | None = Field(default=None, ge=0, le=65535)  # the gRPC door; 0 is a free port, none is no door
    grpc_admin_port: int | None = Field(default=None, ge=0, le=65535)  # the same on loopback, with reflection
    model_dir: Path  # tokenizer.json: the gateway turns ids into text
    model: str = Field(min_length=1)  # the name that clients ask for
    aliases: str = ""  # other names for it, separated by commas
    more_models: tuple[ModelSettings, ...] = ()  # a JSON list of objects: model, model_dir, max_model_len, aliases
    generation_config: Literal["auto", "off"] = "auto"  # auto: sampling as the model's makers recommend
    api_key: SecretStr = SecretStr("")  # this or keys_path is needed unless host is loopback
    keys_path: Path | None = None  # a file of hashed keys, which `headrace keys` writes
    wrong_keys: int = Field(default=WRONG_KEYS, ge=0)  # of one address, before it must wait; 0: it never must
    cors_origins: str = Field(
        default="", examples=["https://chat.example"]
    )  # of other sites' pages that may ask, separated by commas
    redis_url: str = ""  # where gateways share what keys have used; none: each counts by itself
    redis_user: str = ""
    redis_password: SecretStr = SecretStr("")
    otlp_sample_key: SecretStr = SecretStr("")  # a request with it in x-headrace-trace is exported whatever the ratio
    max_body_bytes: int = Field(default=4 << 20, ge=1024, le=64 << 20)
    request_timeout_s: float = Field(default=600.0, gt=0, le=86_400)
    max_connections: int = Field(default=8192, ge=1)  # fewer where the limit on open files says so
    max_waiting: int = Field(default=512, ge=1)  # requests without a token; more are refused
    short_queue: int = Field(default=64, ge=0)  # so many may wait however long it takes
    max_wait_s: float = Field(default=3.0, gt=0)  # beyond those, a request that would wait longer is refused
    max_choices: int = Field(default=128, ge=1, le=128)  # of a request, over all its prompts
    strict_fields: bool = False  # fields that nobody knows are refused instead of ignored
    notice_s: float = Field(default=0.0, ge=0, le=600)  # told to stop, it is not ready for so long before it refuses
    max_model_len: int = Field(ge=2, le=MAX_MODEL_LEN_TOKENS)

    @field_validator("more_models", mode="before")
    @classmethod
    def _more_models_are_json(cls, value: object) -> object:
        try:
            return json.loads(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError("must be JSON") from None

    @model_validator(mode="after")
    def _names_differ(self) -> "Config":
        """Also as parts of subjects, where a dot and an underscore are the same."""
        named = [subject_token(name) for one in self.models for name in (one.model, *one.aliases)]
        if len(set(named)) < len(named):
            raise ValueError("MODEL, ALIASES and MORE_MODELS give the same name twice")
        return self

    @property
    def models(self) -> tuple[ModelSettings, ...]:
        """All that are served, the first one first."""
        aliases = tuple(name.strip() for name in self.aliases.split(",") if name.strip())
        first = ModelSettings(
            model=self.model, model_dir=self.model_dir, max_model_len=self.max_model_len, aliases=aliases
        )
        return (first, *self.more_models)

    @model_validator(mode="after")
    def _a_public_door_has_a_key(self) -> "Config":
        if not is_loopback(self.host) and not (self.api_key.get_secret_value() or self.keys_path):
            raise ValueError("API_KEY or KEYS_PATH is required when HOST is not loopback")
        return self

    @field_validator("cors_origins")
    @classmethod
    def _origins_are_origins(cls, listed: str) -> str:
        parse_origins(listed)
        return listed


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host` (a name or an address, IPv6 without brackets)."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
