"""Who sends wrong keys waits, longer each time; who was right from there before does not."""

import pytest

from services.gateway.backoff import (
    ADDRESSES_MAX,
    FORGOTTEN_AFTER_S,
    LONGEST_WAIT_S,
    Backoff,
    Barred,
    Failures,
    one_more,
    source_of,
    wait_s,
)

FREE = 3


def _wrong(backoff: Backoff, address: str, times: int, now_s: float = 0.0) -> None:
    for _ in range(times):
        backoff.was_wrong(address, now_s)


def _is_barred(backoff: Backoff, address: str, now_s: float = 0.0, key: bytes = b"other") -> bool:
    try:
        backoff.check(address, key, now_s)
    except Barred:
        return True
    return False


def test_each_wrong_key_beyond_the_free_ones_doubles_the_wait() -> None:
    """1 s, 2 s, 4 s, up to the longest, however many come."""
    waits = [wait_s(Failures(count, 5.0), FREE, 5.0) for count in range(FREE + 5)]
    assert waits == [0.0] * (FREE + 1) + [1.0, 2.0, 4.0, 8.0]
    assert wait_s(Failures(10**6, 5.0), FREE, 5.0) == LONGEST_WAIT_S
    assert wait_s(Failures(FREE + 3, 5.0), FREE, 7.5) == 1.5


def test_what_was_long_ago_is_forgotten() -> None:
    """And no wait is longer than that takes, so nobody gets away by waiting it out."""
    assert one_more(Failures(8, 10.0), 10.0 + FORGOTTEN_AFTER_S) == Failures(1, 10.0 + FORGOTTEN_AFTER_S)
    assert one_more(Failures(8, 10.0), 9.0 + FORGOTTEN_AFTER_S).count == 9
    assert LONGEST_WAIT_S < FORGOTTEN_AFTER_S


def test_an_address_waits_alone() -> None:
    """Others do not, and it is told how long; of IPv6 the network waits."""
    backoff = Backoff(FREE)
    _wrong(backoff, "10.0.0.1", FREE)
    assert not _is_barred(backoff, "10.0.0.1")
    _wrong(backoff, "10.0.0.1", 1)
    with pytest.raises(Barred) as refused:
        backoff.check("10.0.0.1", b"other", 0.25)
    assert refused.value.retry_after_s == 0.75
    assert not _is_barred(backoff, "10.0.0.2") and not _is_barred(backoff, "10.0.0.1", 1.0)
    _wrong(backoff, "2001:db8::1", FREE + 1)
    assert _is_barred(backoff, "2001:db8::ffff") and not _is_barred(backoff, "2001:db8:0:1::1")


def test_a_key_that_was_right_from_there_goes_on() -> None:
    """From there alone; and it forgives nothing."""
    backoff = Backoff(FREE)
    backoff.was_right("10.0.0.1", b"known")
    _wrong(backoff, "10.0.0.1", FREE + 1)
    _wrong(backoff, "10.0.0.2", FREE + 1)
    assert not _is_barred(backoff, "10.0.0.1", key=b"known") and _is_barred(backoff, "10.0.0.2", key=b"known")
    backoff.was_right("10.0.0.1", b"known")
    assert _is_barred(backoff, "10.0.0.1")


def test_any_number_of_addresses_takes_bounded_room() -> None:
    """The one that was heard of the longest ago is forgotten."""
    backoff = Backoff(FREE)
    _wrong(backoff, "first", FREE + 1)
    for number in range(ADDRESSES_MAX - 1):
        backoff.was_wrong(f"a{number}", 0.0)
    assert _is_barred(backoff, "first")
    backoff.was_wrong("last", 0.0)
    assert not _is_barred(backoff, "first")


def test_none_free_means_that_nobody_waits() -> None:
    """As behind a proxy that sees to it."""
    backoff = Backoff(0)
    _wrong(backoff, "10.0.0.1", 100)
    assert not _is_barred(backoff, "10.0.0.1")


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix:", "unix:"),
    ],
)
def test_whom_an_address_stands_for(address: str, source: str) -> None:
    """One client, as far as an address can tell."""
    assert source_of(address) == source
