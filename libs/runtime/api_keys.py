"""API keys at rest: a file of keyed hashes, each with its tenant. No key can be read back from it.

A key has 130 random bits, so one round of a fast hash is enough; the salt keeps equal keys of two files apart.
"""

import base64
import fcntl
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from libs.contracts.errors import ConfigError
from libs.contracts.tenancy import FIRST_PRIORITY, LAST_PRIORITY

KEY_PREFIX = "sk-hr-"
KEY_BYTES = 17  # 136 bits, of which 26 letters show 130
KEY_LETTERS = 26
SALT_BYTES = 16
MOST_PER_MINUTE = 1_000_000_000
TENANT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

Tenant = Annotated[str, Meta(pattern=TENANT)]
Priority = Annotated[int, Meta(ge=FIRST_PRIORITY, le=LAST_PRIORITY)]
Scope = Literal["inference", "metrics"]
Limit = Annotated[int, Meta(ge=0, le=MOST_PER_MINUTE)]

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)


class ApiKey(Struct, frozen=True):
    """What is kept of one key. `first_priority` is the lowest, so the earliest, that its requests may ask for."""

    id: str
    tenant: Tenant
    digest: str  # hexadecimal
    first_priority: Priority
    created_unix_s: int
    scopes: tuple[Scope, ...] = ("inference",)
    requests_per_minute: Limit = 0  # 0: no limit
    tokens_per_minute: Limit = 0


class KeyFile(Struct, frozen=True):
    salt: str  # hexadecimal
    keys: tuple[ApiKey, ...] = ()

    def find(self, key: bytes) -> ApiKey | None:
        """Whose key this is. Compares with every one, each in constant time."""
        digest, found = self.digest(key).encode(), None
        for known in self.keys:
            if hmac.compare_digest(known.digest.encode(), digest):
                found = known
        return found

    def digest(self, key: bytes) -> str:
        return hashlib.blake2b(key, key=bytes.fromhex(self.salt), digest_size=32).hexdigest()


def read(path: Path) -> KeyFile:
    """Raises ConfigError for a file that is none, or cannot be read."""
    try:
        keys = msgspec.json.decode(path.read_bytes(), type=KeyFile)
        if not 1 <= len(bytes.fromhex(keys.salt)) <= hashlib.blake2b.MAX_KEY_SIZE:
            raise ValueError("no salt")
    except OSError as error:
        raise ConfigError(f"the key file {path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"{path} is no key file") from error
    return keys


def add(path: Path, tenant: str, *, first_priority: int = 0, **grants: Any) -> tuple[str, ApiKey]:
    """A new key, which nobody can be told again, and what is kept of it. Makes the file where there is none.

    `grants` are its scopes and limits, named as the fields of ApiKey. Raises ConfigError for what cannot be.
    """
    letters = base64.b32encode(secrets.token_bytes(KEY_BYTES)).decode().lower()[:KEY_LETTERS]
    key = KEY_PREFIX + letters
    with _changing(path) as files:
        known = read(path) if path.exists() else KeyFile(secrets.token_hex(SALT_BYTES))
        digest, key_id = known.digest(key.encode()), "k-" + secrets.token_hex(4)
        entry = ApiKey(key_id, tenant, digest, first_priority, int(time.time()), **grants)
        try:
            msgspec.convert(msgspec.to_builtins(entry), ApiKey)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"a tenant is named by 1 to 64 letters, digits and . _ -, a priority is from {FIRST_PRIORITY}"
                f" to {LAST_PRIORITY}, scopes are of {', '.join(SCOPES)}, and a limit is from 0 to {MOST_PER_MINUTE}"
            ) from error
        files.append(KeyFile(known.salt, (*known.keys, entry)))
    return key, entry


def revoke(path: Path, key_id: str) -> ApiKey:
    """Forget a key. Raises ConfigError for one that is not there."""
    with _changing(path) as files:
        known = read(path)
        gone = next((key for key in known.keys if key.id == key_id), None)
        if gone is None:
            raise ConfigError(f"{path} has no key {key_id}")
        files.append(KeyFile(known.salt, tuple(key for key in known.keys if key is not gone)))
    return gone


@contextmanager
def _changing(path: Path) -> Iterator[list[KeyFile]]:
    """One change at a time; what the block appends replaces the file in one move, for its owner's eyes only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder, files = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY), list[KeyFile]()
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield files
        for changed in files:
            scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(msgspec.json.format(msgspec.json.encode(changed)) + b"\n")
                out.flush()
                os.fsync(out.fileno())
            scratch.replace(path)
    finally:
        os.close(folder)
