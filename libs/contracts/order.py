"""The standing order as both ends keep it: who may advance, into which blocks, how far.

Pure; the scheduler and each worker apply the same deltas and compare hashes. The hash is the sum mod 2¹²⁸ of one digest
per entry, so it does not depend on any order of entries and a delta costs only its changes.
"""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from libs.contracts import codec
from libs.contracts.messages import Delta, Resident, SamplingParams

_MODULUS = 1 << 128


@dataclass(frozen=True, slots=True)
class Entry:
    """One resident, as far as the hash covers it: never cursors, tokens or ends."""

    sequence: int
    epoch: int
    until: int
    block_table: tuple[int, ...]
    params_digest: bytes

    def digest(self) -> int:
        fixed = struct.pack("<QII", self.sequence, self.epoch, self.until)
        table = struct.pack(f"<{len(self.block_table)}I", *self.block_table)
        return int.from_bytes(hashlib.blake2b(fixed + self.params_digest + table, digest_size=16).digest(), "little")


class StandingOrder:
    """Entries of one worker at one version. Mutable, owned by one object on each side of the link."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.version = 0
        self._sum = 0

    @property
    def hash(self) -> bytes:
        return self._sum.to_bytes(16, "little")

    def reset(self, version: int, residents: Iterable[Resident]) -> None:
        """Become the order of a Snapshot."""
        self.entries, self._sum, self.version = {}, 0, version
        for resident in residents:
            self._put(_entry_of(resident))

    def apply(self, delta: Delta) -> None:
        """Become the order of the next version. Raises KeyError when the delta names a sequence that is not here."""
        for sequence in delta.removed:
            self._sum = (self._sum - self.entries.pop(sequence).digest()) % _MODULUS
        for resident in delta.added:
            self._put(_entry_of(resident))
        for grant in delta.grants:
            entry = self.entries[grant.sequence]
            self._put(replace(entry, block_table=entry.block_table + grant.block_ids))
        for change in delta.untils:
            self._put(replace(self.entries[change.sequence], until=change.until))
        self.version = delta.version

    def _put(self, entry: Entry) -> None:
        before = self.entries.get(entry.sequence)
        self._sum = (self._sum + entry.digest() - (before.digest() if before else 0)) % _MODULUS
        self.entries[entry.sequence] = entry


def params_digest(params: SamplingParams) -> bytes:
    return hashlib.blake2b(codec.encode(params), digest_size=8).digest()


def _entry_of(resident: Resident) -> Entry:
    return Entry(
        resident.sequence, resident.epoch, resident.until, resident.block_table, params_digest(resident.params)
    )
