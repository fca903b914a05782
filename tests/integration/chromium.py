"""A headless Chromium that opens one page, driven over its own pipes: no port, no profile that stays, no package.

Debian: `apt install chromium`. HR_CHROMIUM names another binary. https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import os
import shutil
import struct
import zlib
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

BINARIES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS: Final = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars"),
    *("--force-color-profile=srgb", "--force-device-scale-factor=1", "--window-size=1280,2400"),
)
MOST_BYTES: Final = 64 << 20
PATIENCE_S: Final = 30.0
PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n"
NOTICES: Final = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")


class Rect(NamedTuple):
    """In pixels of the page."""

    x: float
    y: float
    width: float
    height: float


def find_chromium() -> str:
    """Its path; skips the test where there is none."""
    named = os.environ.get("HR_CHROMIUM", "")
    if found := next(filter(None, map(shutil.which, (named,) if named else BINARIES)), None):
        return found
    pytest.skip("no chromium on the PATH (Debian: apt install chromium), and HR_CHROMIUM names none")


class Page:
    """One tab. `requests` are the addresses it asked for, `notices` what it had to complain about."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0
        self._session = ""
        self.requests: list[str] = []
        self.notices: list[str] = []
        self._seen: list[str] = []  # methods of events

    async def open(self, path: Path) -> None:
        """Load a file, until nothing of it is missing."""
        tab = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=tab, flatten=True))["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{domain}.enable")
        light = [{"name": "prefers-color-scheme", "value": "light"}]
        await self.call("Emulation.setEmulatedMedia", features=light)
        await self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self._seen:
            self._note(await self._receive())

    async def rects(self, selector: str) -> list[Rect]:
        """Where the elements of a selector lie."""
        found = f"[...document.querySelectorAll({selector!r})].map(e => e.getBoundingClientRect())"
        script = f"JSON.stringify({found}.map(r => [r.x + scrollX, r.y + scrollY, r.width, r.height]))"
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return [Rect(*rect) for rect in msgspec.json.decode(answer["result"]["value"])]

    async def pixels(self, rect: Rect) -> npt.NDArray[np.uint8]:
        """A screenshot of a part of the page: [height, width, 3], red, green, blue."""
        clip = {**rect._asdict(), "scale": 1}
        answer = await self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return decode_png(base64.b64decode(answer["data"]))

    async def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        self._writer.write(msgspec.json.encode(message) + b"\0")
        while (answer := await self._receive()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _note(self, event: dict[str, Any]) -> None:
        method = event.get("method", "")
        self._seen.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        elif method in NOTICES:
            self.notices.append(str(event["params"]))

    async def _receive(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            payload = await self._reader.readuntil(b"\0")
        return msgspec.json.decode(payload[:-1], type=dict[str, Any])


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Page]:
    """A browser with one tab; it ends with the block. `profile` is an empty directory."""
    binary = find_chromium()
    (to_read, to_write), (from_read, from_write) = os.pipe(), os.pipe()
    moved = f'exec 3<&{to_read} 4>&{from_write}; exec "$@"'  # the browser reads from 3 and writes to 4
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    command = ("bash", "-c", moved, "bash", binary, *FLAGS, *sandbox, f"--user-data-dir={profile}", "about:blank")
    process = await asyncio.create_subprocess_exec(
        *command, pass_fds=(to_read, from_write), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    os.close(to_read)
    os.close(from_write)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_BYTES)
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_read, "rb"))
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(to_write, "wb"))
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    page = Page(reader, writer)
    try:
        yield page
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        pipe.close()
        writer.close()


def decode_png(payload: bytes) -> npt.NDArray[np.uint8]:
    """[height, width, 3] of a PNG of eight bits a colour, not interlaced. https://www.w3.org/TR/png-3/"""
    assert payload.startswith(PNG_HEAD)
    at, compressed, width, height, channels = len(PNG_HEAD), b"", 0, 0, 0
    while at < len(payload):
        (size,) = struct.unpack_from(">I", payload, at)
        kind, body = payload[at + 4 : at + 8], payload[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0)
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            compressed += body
        at += size + 12
    lines = zlib.decompress(compressed)
    rows, stride, above = [], width * channels, bytearray(width * channels)
    for start in range(0, len(lines), stride + 1):
        line = bytearray(lines[start + 1 : start + 1 + stride])
        _unfilter(lines[start], line, above, channels)
        rows.append(line)
        above = line
    return np.frombuffer(b"".join(rows), np.uint8).reshape(height, width, channels)[:, :, :3]


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> None:
    """A line as it was before it was made easy to compress."""
    if kind == 0:
        return
    for i in range(len(line)):
        left = line[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = above[i]
        elif kind == 3:
            guess = (left + above[i]) // 2
        else:
            guess = _paeth(left, above[i], corner)
        line[i] = (line[i] + guess) & 0xFF


def _paeth(left: int, above: int, corner: int) -> int:
    to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner
