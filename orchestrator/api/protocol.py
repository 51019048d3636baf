"""HTTP/1.1 on one connection: uvicorn's own protocol, with bounds on heads and who sits at the other end.

Comes in: bytes of a connection. Goes out: ASGI calls, with the peer's uid or key in the scope. Called by: uvicorn,
which makes one for each connection (serve names it).

Added to uvicorn's: who sits at the other end of a Unix socket (the kernel's word, SO_PEERCRED), and which key the peer
of a TLS connection has proved to have; an end for heads that are too long or arrive too slowly; problem documents for
what is no HTTP; a long poll ends when its connection does.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from functools import partial
from typing import Any, cast

import httptools
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from orchestrator.api.access import PEER, PEER_KEY
from orchestrator.api.bodies import WHOLE
from orchestrator.api.gate import GONE, QUICK
from orchestrator.api.hub import POLL
from orchestrator.api.problems import BadRequest, problem_of
from orchestrator.model.errors import InputError

MOST_HEAD = 64 * 1024  # bytes of request line and headers
HEAD_S = 15.0  # seconds in which a head must be there once it has begun
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)


class HeadTooLarge(InputError):
    """Request line and headers are longer than anything that makes sense here."""

    http_status = 431


class HeadTooSlow(InputError):
    """The head did not arrive in time."""

    http_status = 408


class Protocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the kernel, or the handshake, who it is, once."""
        self._peer = peer_uid(transport)
        self._peer_key = peer_key(transport)
        self._head = 0
        self._in_head = False
        self._fault: InputError | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        super().connection_made(
            cast("asyncio.Transport", Joined(cast("asyncio.Transport", transport), self.loop))
        )
        # A connection that never says anything is closed like one that says no more.
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the long poll that nobody waits for any more."""
        self._stop_head_timer()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        answered = cycle is None or cycle.response_complete
        scope = cast("dict[str, Any]", self.scope)
        super().connection_lost(exc)
        if not answered:
            scope[GONE] = True
            task: asyncio.Task[Any] | None = scope.get(POLL)
            if task is not None:
                task.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes; whoever leaves a head unfinished gets a deadline for it."""
        super().data_received(data)
        if self._in_head and self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head, self._in_head = 0, True
        if self._peer is not None:
            cast("dict[str, Any]", self.scope)[PEER] = self._peer
        if self._peer_key:
            cast("dict[str, Any]", self.scope)[PEER_KEY] = self._peer_key

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there. A target that is no path (`*`, a bare authority) is refused."""
        self._in_head = False
        self._stop_head_timer()
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)[QUICK] = partial(send_whole, self.cycle)

    def on_message_complete(self) -> None:
        """The body is there: whoever reads it need not look at the clock."""
        super().on_message_complete()
        cast("dict[str, Any]", self.scope)[WHOLE] = True

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, told as a problem; the connection ends."""
        fault = self._fault or BadRequest("request.not-http", "this is not HTTP/1.1 as it is read here")
        found = problem_of(fault)
        body = found.model_dump_json().encode()
        head = (
            f"HTTP/1.1 {found.status} {found.title}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _count(self, size: int) -> None:
        """An exception here ends the parsing, and with it the connection."""
        self._head += size
        if self._head > MOST_HEAD:
            self._fault = HeadTooLarge(
                "request.head-too-large", f"request line and headers have more than {MOST_HEAD} bytes"
            )
            raise httptools.HttpParserError("head too large")

    def _head_is_late(self) -> None:
        if not self.transport.is_closing():
            self._fault = HeadTooSlow("request.too-slow", f"the head was not there within {HEAD_S:g} s")
            self.send_400_response("")

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def send_whole(cycle: RequestResponseCycle, response: Response) -> bool:
    """Send an answer that is there as a whole, head and body in one piece, and end the cycle as its own `send` would in
    two calls, which cost more than a beat's other work. False, and nothing sent, where more is to be looked at."""
    busy = cycle.flow.write_paused or cycle.waiting_for_100_continue or cycle.response_started
    if busy or cycle.disconnected or not cycle.keep_alive or cycle.scope["method"] == "HEAD":
        return False
    lines: list[bytes | memoryview] = [STATUS_LINE[response.status_code]]
    for name, value in (*cycle.default_headers, *response.raw_headers):
        lines += (name, b": ", value, b"\r\n")
    lines += (b"\r\n", response.body)
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"".join(lines))
    cycle.message_event.set()
    cycle.on_response()
    return True


class Joined:
    """A transport whose writes of one turn of the event loop go out together. Head and body of an answer come as two,
    and each would be a call of the kernel, a packet, and a wake-up at the other end. All else is the transport's."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Keep it until this turn is over."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Close when all is out."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """The uid of the process at the other end of a Unix socket, as it was when it connected; None for others."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(packed)[1]
    return uid


def peer_key(transport: asyncio.BaseTransport) -> str:
    """The SHA-256 (hex) of the public key whose private half the peer of a TLS connection has proved to have; empty for
    one that has shown no certificate. The handshake has ended if the certificate is not of the nodes' authority."""
    tls = transport.get_extra_info("ssl_object")
    shown = tls.getpeercert(binary_form=True) if tls is not None else None
    if not shown:
        return ""
    from orchestrator.provision.node_keys import key_of

    return key_of(shown)
