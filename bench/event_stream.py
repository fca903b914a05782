"""Takes apart the bytes of a streamed HTTP answer: status line, chunked framing, server-sent events. No I/O."""

from typing import Final

END_OF_HEAD: Final = b"\r\n\r\n"
MAX_HEAD_BYTES: Final = 1 << 16
DATA: Final = b"data:"


class BrokenAnswer(Exception):
    """The server sent what is not HTTP/1.1 with server-sent events."""


class EventReader:
    """Feed it what arrives; it gives the data of each event as soon as that is whole.

    A chunk's bytes are read at once, be it complete or not: an event counts from when its last byte is there.
    """

    def __init__(self) -> None:
        self.status = 0
        self.ended = False  # the body is whole: the connection may carry the next request
        self.error_body = b""  # body of an answer whose status is not 200
        self._head_done = False
        self._chunked = False
        self._left_bytes = 0  # of the chunk, or of a body whose length was given
        self._in_chunk = False
        self._raw = b""
        self._text = b""

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that `received` completes. Raises BrokenAnswer."""
        self._raw += received
        if not self._head_done and not self._take_head():
            return []
        body = self._take_chunks() if self._chunked else self._take_plain()
        if self.status != 200:
            self.error_body += body
            return []
        return self._take_events(body)

    def _take_head(self) -> bool:
        head, found, rest = self._raw.partition(END_OF_HEAD)
        if not found:
            if len(self._raw) > MAX_HEAD_BYTES:
                raise BrokenAnswer("the head of the answer does not end")
            return False
        status_line, *lines = head.split(b"\r\n")
        fields = status_line.split(b" ", 2)
        if len(fields) < 2 or not fields[0].startswith(b"HTTP/1.") or not fields[1].isdigit():
            raise BrokenAnswer(f"not a status line: {status_line[:80]!r}")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        self.status = int(fields[1])
        self._chunked = b"chunked" in headers.get(b"transfer-encoding", b"").lower()
        self._left_bytes = int(headers.get(b"content-length", b"-1"))  # -1: until the connection closes
        self._head_done, self._raw = True, rest
        if self._chunked:
            self._left_bytes = 0
        return True

    def _take_plain(self) -> bytes:
        body, self._raw = self._raw, b""
        if self._left_bytes >= 0:
            self._left_bytes -= len(body)
            self.ended = self._left_bytes <= 0
        return body

    def _take_chunks(self) -> bytes:
        parts = []
        while self._raw and not self.ended:
            if self._left_bytes:
                part, self._raw = self._raw[: self._left_bytes], self._raw[self._left_bytes :]
                self._left_bytes -= len(part)
                parts.append(part)
                continue
            line, found, rest = self._raw.partition(b"\r\n")
            if not found:
                break
            self._raw = rest
            self._chunk_line(line)
        return b"".join(parts)

    def _chunk_line(self, line: bytes) -> None:
        """The line after a chunk's bytes is empty, the next tells the length of the next chunk; 0 is the last."""
        if self._in_chunk:
            self._in_chunk = False
            if not line:
                return
            raise BrokenAnswer(f"a chunk is longer than it said: {line[:80]!r}")
        try:
            self._left_bytes = int(line.partition(b";")[0], 16)
        except ValueError:
            raise BrokenAnswer(f"not a chunk's length: {line[:80]!r}") from None
        self._in_chunk, self.ended = True, self._left_bytes == 0

    def _take_events(self, body: bytes) -> list[bytes]:
        """An event is a line `data: …`; other fields, comments and empty lines carry nothing for us."""
        *lines, self._text = (self._text + body).split(b"\n")
        return [line[len(DATA) :].strip() for line in lines if line.startswith(DATA)]
