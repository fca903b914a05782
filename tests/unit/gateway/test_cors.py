"""Which pages of other sites may ask."""

import pytest

from services.gateway.cors import Cors, parse_origins
from services.gateway.reply import Receive, Scope, Send
from tests.unit.gateway.asgi import Call

PAGE = "https://chat.example"


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["method"].encode()})


async def _asked(origins: str, origin: str, method: str = "GET", **headers: str) -> Call:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    call = Call(Cors(_app, parse_origins(origins)), "/v1/models", method=method, headers={"origin": origin, **given})
    await call.whole()
    return call


async def test_nobody_may_by_default() -> None:
    """No header of an answer lets another page read it, and no preflight is answered for it."""
    call = await _asked("", PAGE, "OPTIONS", access_control_request_method="POST")
    assert call.status == 200 and not call.headers


@pytest.mark.parametrize(
    "origin", ["https://chat.example:8443", "http://chat.example", "null", "https://chat.example.evil"]
)
async def test_an_origin_is_all_of_it(origin: str) -> None:
    """Another port, scheme or name is another page."""
    assert not (await _asked(PAGE, origin)).headers


async def test_a_page_that_may_reads_the_answer_and_its_headers() -> None:
    """By its own origin, never by `*`, and without credentials."""
    call = await _asked(f"http://localhost:3000, {PAGE}", PAGE)
    assert call.headers["access-control-allow-origin"] == PAGE and call.headers["vary"] == "origin"
    assert "x-ratelimit-remaining-tokens" in call.headers["access-control-expose-headers"]
    assert not any("credentials" in name for name in call.headers)


async def test_a_preflight_is_answered_in_front_of_the_guard() -> None:
    """With what may be sent; any other OPTIONS goes on."""
    call = await _asked(PAGE, PAGE, "OPTIONS", access_control_request_method="POST")
    assert call.status == 204 and "authorization" in call.headers["access-control-allow-headers"]
    assert (await _asked(PAGE, PAGE, "OPTIONS")).status == 200


@pytest.mark.parametrize("listed", ["*", "chat.example", "https://", "https://a/b", "file://x", "https://*.example"])
def test_what_is_no_origin_is_refused(listed: str) -> None:
    """A mistake must not open the door to all."""
    with pytest.raises(ValueError, match="no origin"):
        parse_origins(listed)
