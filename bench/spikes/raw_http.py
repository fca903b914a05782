"""A blocking HTTP/1.1 and HTTP/2 (prior knowledge) client that can vanish at any moment."""

import socket
import struct
from collections.abc import Iterator

SETTINGS, HEADERS, DATA, RST_STREAM, WINDOW_UPDATE, PING = 4, 1, 0, 3, 8, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CANCEL = struct.pack(">I", 8)


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """One HTTP/2 frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream_id) + payload


def post_headers(path: str, body_bytes: int) -> bytes:
    """HPACK block of a POST, all literal without indexing (RFC 7541, section 6.2.2)."""
    authority = b"localhost"
    length = str(body_bytes).encode()
    return (
        b"\x83\x86"  # :method POST, :scheme http
        + b"\x04" + bytes([len(path)]) + path.encode()
        + b"\x01" + bytes([len(authority)]) + authority
        + b"\x0f\x0d" + bytes([len(length)]) + length  # static index 28: content-length
    )  # fmt: skip


class RawClient:
    """One connection with one request on it."""

    def __init__(self, port: int, *, http2: bool, receive_buffer_bytes: int | None = None) -> None:
        self.http2 = http2
        self._sock = socket.socket()
        if receive_buffer_bytes is not None:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._sock.connect(("127.0.0.1", port))
        self._sock.settimeout(5)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def post(self, path: str, body: bytes = b"{}") -> None:
        """Send the whole request."""
        if self.http2:
            self._sock.sendall(
                PREFACE
                + frame(SETTINGS, 0, 0, b"")
                + frame(HEADERS, END_HEADERS, 1, post_headers(path, len(body)))
                + frame(DATA, END_STREAM, 1, body)
            )
        else:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            self._sock.sendall(head.encode() + body)

    def wait_head(self) -> None:
        """Read until the response head has come."""
        if self.http2:
            while self._read_frame()[0] != HEADERS:
                pass
        else:
            while b"\r\n\r\n" not in self._buffer:
                self._fill()
            self._buffer = self._buffer.partition(b"\r\n\r\n")[2]

    def chunks(self) -> Iterator[bytes]:
        """Body chunks as the server framed them (HTTP/1.1 chunked, HTTP/2 DATA), until the last."""
        while chunk := self._read_data_frame() if self.http2 else self._read_chunk():
            yield chunk

    def cancel_stream(self) -> None:
        """HTTP/2: give up the request and keep the connection."""
        self._sock.sendall(frame(RST_STREAM, 0, 1, CANCEL))

    def shutdown_write(self) -> None:
        """Send FIN and go on reading."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool = False) -> None:
        """Close with FIN, or with RST as a killed peer with unread data does."""
        if reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def _fill(self) -> None:
        piece = self._sock.recv(65536)
        if not piece:
            raise ConnectionResetError("server closed the connection")
        self._buffer += piece

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._fill()
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _read_chunk(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._fill()
        size, _, self._buffer = self._buffer.partition(b"\r\n")
        return self._take(int(size, 16) + 2)[:-2]

    def _read_data_frame(self) -> bytes:
        while True:
            kind, flags, payload = self._read_frame()
            if kind == DATA and (payload or flags & END_STREAM):
                return payload

    def _read_frame(self) -> tuple[int, int, bytes]:
        head = self._take(9)
        kind, flags = head[3], head[4]
        payload = self._take(int.from_bytes(head[:3], "big"))
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._sock.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        return kind, flags, payload
