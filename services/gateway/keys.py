"""Who a key belongs to: the one of the settings, or those of a file, which is read again when it has changed."""

import hashlib
import hmac
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from libs.contracts.errors import ConfigError, Unauthorized
from libs.contracts.tenancy import DEFAULT_TENANT, FIRST_PRIORITY
from libs.runtime import api_keys
from libs.runtime.api_keys import SCOPES, ApiKey, Scope
from libs.runtime.logs import get_logger
from libs.runtime.quota import NO_LIMITS, QuotaLimits
from services.gateway.backoff import WRONG_KEYS, Backoff
from services.gateway.errors_http import Refused

LOOKED_AT_S = 1.0  # a key that is taken back is good for no longer than this
NEEDED = "a valid API key is needed: Authorization: Bearer KEY"

log = get_logger("gateway")


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a request comes."""

    tenant: str = DEFAULT_TENANT
    first_priority: int = FIRST_PRIORITY  # the lowest, so the earliest, that it may ask for
    key_id: str = ""  # of a key of the file; no other has limits
    scopes: tuple[str, ...] = SCOPES
    limits: QuotaLimits = NO_LIMITS

    def check_scope(self, scope: Scope) -> None:
        """Raises Refused."""
        if scope not in self.scopes:
            raise Refused("forbidden", f"the key lacks the scope {scope}")


ANYBODY = Caller()


class Keys:
    """`api_key` "" and `path` None: no key is needed. Raises ConfigError for a file that cannot be read."""

    def __init__(
        self,
        api_key: str = "",
        path: Path | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        *,
        wrong_keys: int = WRONG_KEYS,
    ):
        self._backoff = Backoff(wrong_keys)
        self._api_digest = _digest(api_key.encode()) if api_key else b""
        self._path, self._clock_s = path, clock_s
        self._looked_s, self._stamp = clock_s(), _stamp(path)
        self._file = None if path is None else api_keys.read(path)

    @property
    def are_needed(self) -> bool:
        return bool(self._api_digest) or self._path is not None

    def bearer(self, authorization: bytes, address: str = "") -> Caller:
        """Who sends this Authorization from there. Raises Unauthorized, Barred; where no key is needed, anybody may.

        Who sends no key at all guesses none, and is never barred.
        """
        if not self.are_needed:
            return ANYBODY
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not key:
            raise Unauthorized(NEEDED)
        digest, now_s = _digest(key), self._clock_s()
        self._backoff.check(address, digest, now_s)
        caller = self.caller(key)
        if caller is None:
            if self._backoff.was_wrong(address, now_s):
                log.warning("address_barred", address=address)
            raise Unauthorized(NEEDED)
        self._backoff.was_right(address, digest)
        return caller

    def caller(self, key: bytes) -> Caller | None:
        """None for a key that nobody has."""
        is_api_key = bool(self._api_digest) and hmac.compare_digest(_digest(key), self._api_digest)
        self._look()
        known = self._file.find(key) if self._file is not None else None
        if is_api_key:
            return ANYBODY
        return None if known is None else _caller_of(known)

    def _look(self) -> None:
        """A file that has become unreadable changes nothing: a slip of the pen must not shut everybody out."""
        if self._path is None or self._clock_s() - self._looked_s < LOOKED_AT_S:
            return
        self._looked_s = self._clock_s()
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._file = api_keys.read(self._path)
            log.info("keys_read", keys=len(self._file.keys))
        except ConfigError as error:
            log.error("keys_not_read", reason=error.message)


def _caller_of(key: ApiKey) -> Caller:
    limits = QuotaLimits(key.requests_per_minute, key.tokens_per_minute)
    return Caller(key.tenant, key.first_priority, key.id, key.scopes, limits)


def _digest(key: bytes) -> bytes:
    """Equal lengths, so that comparing takes the same time whatever is compared."""
    return hashlib.sha256(key).digest()


def _stamp(path: Path | None) -> tuple[int, int, int]:
    """Differs once the file was replaced or written to."""
    try:
        found = os.stat(path or "")
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
