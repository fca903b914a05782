"""Guessing keys at the doors: how long a look takes says nothing, guesses are slowed, and no log has a key."""

import hmac
import random
import statistics
import time
from pathlib import Path

import pytest

from libs.contracts.errors import Unauthorized
from libs.runtime import api_keys
from libs.runtime.logs import setup_logs
from services.gateway.backoff import WRONG_KEYS, Barred
from services.gateway.keys import Keys
from services.gateway.rpc import _address
from tests.unit.gateway.conftest import running_gateway
from tests.unit.gateway.sockets import Socket
from tests.unit.runtime.test_logs import _restore_logging  # noqa: F401  # pytest finds it by its name here

KEY = "sk-of-the-settings-and-long-enough"
SAMPLES = 5_000  # of each kind
T_MAX = 12.0  # of equal times it is about 1; of a comparison letter by letter it is above 100


def test_how_much_of_a_key_is_right_does_not_show_in_the_time(tmp_path: Path) -> None:
    """10^4 looks at keys that begin as the right one does, and that do not, in turns drawn at random."""
    path = tmp_path / "keys.json"
    key, _ = api_keys.add(path, "acme")
    kinds = [(key[:-1] + "!").encode(), ("!" + key[1:]).encode()]
    looked_up = Keys(KEY, path)
    turns = [0, 1] * SAMPLES
    random.Random(5).shuffle(turns)
    times_ns: tuple[list[int], list[int]] = ([], [])
    for kind in turns:
        begun_ns = time.perf_counter_ns()
        looked_up.caller(kinds[kind])
        times_ns[kind].append(time.perf_counter_ns() - begun_ns)

    # Who else uses the machine makes some slow: those say nothing about the look.
    one, other = (sorted(times)[: SAMPLES * 3 // 4] for times in times_ns)
    error_ns = ((statistics.variance(one) + statistics.variance(other)) / len(one)) ** 0.5
    assert abs(statistics.fmean(one) - statistics.fmean(other)) < T_MAX * error_ns


def test_every_key_is_compared_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often, and over as many bytes, whichever it is: in hmac.compare_digest alone, and of hashes."""
    path = tmp_path / "keys.json"
    first, _ = api_keys.add(path, "one")
    api_keys.add(path, "two")
    looked_up = Keys(KEY, path)
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def noting(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    patterns = []
    for key in (KEY, first, KEY[:-1], first[:-1], "", "x" * 4000):
        compared.clear()
        looked_up.caller(key.encode())
        patterns.append(tuple(compared))
    assert set(patterns) == {((32, 32), (64, 64), (64, 64))}


def test_guesses_are_slowed_and_missing_keys_are_not() -> None:
    """Whoever guesses is not even told when it is right; what carries no key guesses nothing."""
    looked_up = Keys(KEY, clock_s=lambda: 0.0)
    for _ in range(10 * WRONG_KEYS):
        for none in (b"", b"Bearer ", b"Basic Zm9v"):
            with pytest.raises(Unauthorized):
                looked_up.bearer(none, "10.0.0.1")
    for number in range(WRONG_KEYS + 1):
        with pytest.raises(Unauthorized):
            looked_up.bearer(b"Bearer %d" % number, "10.0.0.1")
    with pytest.raises(Barred):
        looked_up.bearer(b"Bearer " + KEY.encode(), "10.0.0.1")
    assert looked_up.bearer(b"Bearer " + KEY.encode(), "10.0.0.2").tenant == "default"
    with pytest.raises(Unauthorized):
        looked_up.bearer(b"", "10.0.0.1")


async def test_http_and_sockets_count_together_and_no_log_has_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    """429 that says when to come again, a socket is closed before it opens, one warning, and never a key."""
    setup_logs("debug", "json")
    async with running_gateway(api_key=KEY) as gateway:
        for number in range(WRONG_KEYS):
            wrong = gateway.call("/v1/models", method="GET", headers={"authorization": f"Bearer sk-guess-{number}"})
            await wrong.whole()
            assert wrong.status == 401
        socket = Socket(gateway.app, authorization="Bearer sk-guess-socket")
        assert await socket.hear() is None and socket.closed
        barred = gateway.call("/v1/models", method="GET", headers={"authorization": f"Bearer {KEY}"})
        error = (await barred.json())["error"]
        missing = gateway.call("/v1/models", method="GET")
        await missing.whole()

    assert (barred.status, error["code"], missing.status) == (429, "rate_limit_exceeded", 401)
    assert 1 <= int(barred.headers["retry-after"]) <= 2
    written = capsys.readouterr().err
    assert written.count("address_barred") == 1 and "sk-guess" not in written and KEY not in written


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:10.0.0.1:5000", "10.0.0.1"), ("ipv6:%5B2001:db8::1%5D:5000", "2001:db8::1"), ("unix:", "unix:")],
)
def test_the_address_of_a_grpc_peer(peer: str, address: str) -> None:
    """As grpcio spells peers."""
    assert _address(peer) == address
