"""How long an address that sends wrong keys waits until one more of its keys is looked at. Pure: times are given.

A key that was right from there before is looked at all the same: whoever shares an address with a guesser, behind a
proxy say, goes on, and a guesser learns nothing from it that a key in use at its own address would not tell.
"""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

from libs.contracts.errors import HeadraceError

WRONG_KEYS = 10  # that cost nothing, unless told otherwise
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
FORGOTTEN_AFTER_S = 120.0  # without a wrong key; longer than any wait, so that waiting does not begin anew
ADDRESSES_MAX, KNOWN_MAX = 4096, 4096  # beyond those the one that was heard of the longest ago is forgotten
IPV6_PREFIX = 64  # whoever has one address of such a network has all


class Barred(HeadraceError):
    """Refused unseen because of the wrong keys that came before it."""

    code, retryable = "rate_limit_exceeded", True

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many wrong API keys came from this address, try again later")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Failures:
    """Wrong keys from one address, and when the last one came."""

    count: int = 0
    last_s: float = 0.0


def one_more(failures: Failures, now_s: float) -> Failures:
    kept = failures.count if now_s - failures.last_s < FORGOTTEN_AFTER_S else 0
    return Failures(kept + 1, now_s)


def wait_s(failures: Failures, free: int, now_s: float) -> float:
    """From now; 0 for who need not wait. Each wrong key beyond those that are free doubles it."""
    if failures.count <= free:
        return 0.0
    doubled = min(failures.count - free - 1, 30)  # a float's power, and far beyond the longest
    whole_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**doubled)
    return max(0.0, failures.last_s + whole_s - now_s)


def source_of(address: str) -> str:
    """Whom an address stands for: itself, and of IPv6 its network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped or ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
    return str(found)


class Backoff:
    """Mutable, bounded. `free` wrong keys cost nothing; 0: none ever does."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._failures: OrderedDict[str, Failures] = OrderedDict()  # by source, the last one heard of last
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()  # sources and digests of right keys

    def check(self, address: str, digest: bytes, now_s: float) -> None:
        """Whether this key is looked at. Raises Barred."""
        source = source_of(address)
        left_s = wait_s(self._failures.get(source, Failures()), self._free, now_s) if self._free else 0.0
        if left_s and (source, digest) not in self._known:
            raise Barred(left_s)

    def was_wrong(self, address: str, now_s: float) -> bool:
        """Count it. Whether its address has to wait from now on."""
        source = source_of(address)
        failures = one_more(self._failures.pop(source, Failures()), now_s)
        self._failures[source] = failures
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return bool(self._free) and wait_s(failures, self._free, now_s) > 0

    def was_right(self, address: str, digest: bytes) -> None:
        """Forgives nothing: whoever has one key could guess others at no cost."""
        known = source_of(address), digest
        self._known[known] = None
        self._known.move_to_end(known)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
