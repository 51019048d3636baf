"""One keep-alive HTTP/1.1 connection for load generators: as little processor time as Python allows.

Comes in: requests as bytes, one at a time. Goes out: a call with status and body; a call when the connection has gone.
Called by: emulated, submitters. It understands what Gangline's server sends (a Content-Length, no chunks), and no more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

Done = Callable[[int, bytes], None]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Link(asyncio.Protocol):
    """`ready` is called once connected, `gone` when the connection is lost; a request without answer is forgotten."""

    def __init__(self, ready: Callable[[], None], gone: Callable[[], None]) -> None:
        self._ready = ready
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._buffer = b""
        self._end = 0  # where the answer in the buffer ends; 0: its head is not whole yet
        self._body = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell whoever waits."""
        self._transport = cast("asyncio.Transport", transport)
        self._ready()

    def send(self, request: bytes, done: Done) -> None:
        """Send a whole request; there must be none without an answer."""
        assert self._transport is not None
        assert self._done is None
        self._done = done
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect; hand the answer over when it is whole."""
        buffer = self._buffer = self._buffer + data if self._buffer else data
        if not self._end:
            head = buffer.find(b"\r\n\r\n")
            if head < 0:
                return
            found = _LENGTH.search(buffer, 0, head)
            self._body = head + 4
            self._end = self._body + (int(found.group(1)) if found else 0)
        if len(buffer) < self._end:
            return
        status, body, done = int(buffer[9:12]), buffer[self._body : self._end], self._done
        self._buffer, self._end, self._done = buffer[self._end :], 0, None
        if done is not None:
            done(status, body)

    def connection_lost(self, _: Exception | None) -> None:
        """Forget the request, tell whoever owns this."""
        self._transport = self._done = None
        self._gone()

    def close(self) -> None:
        """Close without telling."""
        self._gone = _nothing
        if self._transport is not None:
            self._transport.abort()


def _nothing() -> None:
    return None


def head(path: str, token: str, more: str = "") -> bytes:
    """All of a POST's head but its length and the empty line; `more`: further header lines, each with its CRLF."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\n{more}Content-Length: "
    ).encode()


def request(start: bytes, body: bytes) -> bytes:
    """A head and its body."""
    return b"%b%d\r\n\r\n%b" % (start, len(body), body)
