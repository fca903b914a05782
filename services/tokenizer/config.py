"""Tokenizer settings. Units are in the names; there are no others."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from libs.runtime.config import ServiceConfig

HASH_KEY_BYTES_MAX = 64


class Config(ServiceConfig):
    model_dir: Path  # tokenizer.json and the chat template
    model: str = Field(min_length=1)  # the name that clients ask for
    hash_key: SecretStr  # hex; secret to the deployment, the same in all tokenizers
    max_model_len: int = Field(ge=2)  # tokens of prompt and answer together
    redis_url: str = ""  # empty: no prefix index
    redis_user: str = ""
    redis_password: SecretStr = SecretStr("")
    threads: int = Field(default=1, ge=1, le=64)  # for short prompts; long ones have one of their own

    @field_validator("hash_key")
    @classmethod
    def _hash_key_is_hex(cls, value: SecretStr) -> SecretStr:
        try:
            size_bytes = len(bytes.fromhex(value.get_secret_value()))
        except ValueError:
            raise ValueError("must be hexadecimal digits") from None
        if not 1 <= size_bytes <= HASH_KEY_BYTES_MAX:
            raise ValueError(f"must be 1 to {HASH_KEY_BYTES_MAX} bytes")
        return value

    @property
    def hash_key_bytes(self) -> bytes:
        return bytes.fromhex(self.hash_key.get_secret_value())
