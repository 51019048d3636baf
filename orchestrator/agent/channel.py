"""One HTTP/1.1 connection to the controller, without blocking: TCP, TLS or a Unix socket, one request at a time.

Comes in: the controller's URL, requests. Goes out: a `Reply` or a `Failure`, by a call from the loop. Called by:
sync (two of them: one holds the idle poll, the other pushes events), join and the log server.

The connection is kept between requests. One that the controller closed while idle is opened again at once, since
every request of the agent may be repeated.
"""

from __future__ import annotations

import errno
import os
import socket
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.agent.loop import READ, WRITE, Loop

if TYPE_CHECKING:
    import ssl

CONNECT_TIMEOUT_S = 10.0
MAX_HEAD = 65536  # bytes
MOST_ANONYMOUS = 1 << 20  # bytes of an answer from somebody who may be anybody
LONGEST_LABEL = 63  # characters of a part of a host's name (RFC 1035, 2.3.4)
LAST_PORT = 65535
_CHUNK = 262144
_NAME_SIGNS = string.ascii_letters + string.digits + "_-"
_ADDRESS_SIGNS = _NAME_SIGNS + ":.%"  # of IPv6, which may name its link behind a %


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the controller answers. `unix` is a socket's path; else host and port, with TLS or not."""

    host: str = ""
    port: int = 0
    tls: bool = False
    unix: str = ""
    prefix: str = ""

    @property
    def authority(self) -> str:
        """The Host header."""
        if not self.host:
            return "localhost"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> Endpoint:
    """`http://HOST:PORT`, `https://HOST:PORT`, `unix:/PATH`; ValueError says what is wrong."""
    if url.startswith("unix:") and "\0" not in url:
        return Endpoint(unix="/" + url[5:].lstrip("/"))
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in ("http", "https"):
        raise ValueError("expected http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("it has characters that no address has")
    authority, _, path = rest.partition("/")
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, "443" if scheme == "https" else "80"
    _check_place(host, port)
    return Endpoint(
        host.strip("[]").lower(), int(port), scheme == "https", prefix="/" + path.rstrip("/") if path else ""
    )


def _check_place(host: str, port: str) -> None:
    """ValueError for what could be no name, no address, or no port: resolvers do not say so kindly."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else ""
    labels = host.removesuffix(".").split(".")
    if not host:
        raise ValueError("the host is missing")
    if "@" in host:
        raise ValueError("no user and no password belong there")
    if bare and bare.strip(_ADDRESS_SIGNS):
        raise ValueError("the address in brackets is none")
    if not bare and not all(0 < len(one) <= LONGEST_LABEL and not one.strip(_NAME_SIGNS) for one in labels):
        raise ValueError("the host is no name and no address; IPv6 goes in brackets")
    if not port.isdecimal() or len(port) > 5 or not 0 < int(port) <= LAST_PORT:
        raise ValueError("the port is none")


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    body: bytes
    closes: bool = False  # the connection can't be used again


@dataclass(frozen=True, slots=True)
class Failure:
    """Nothing came back. `refused`: nobody listens there, which proves that no controller is there. `hung_up`: a new
    TLS connection was ended without a word, as a controller does that does not take the certificate which was shown."""

    error: str
    refused: bool = False
    hung_up: bool = False


Outcome = Reply | Failure
Done = Callable[[Outcome], None]
Step = Callable[[], "int | Reply"]
GO_ON = 0  # an epoll mask that waits for nothing


@dataclass(slots=True)
class _Request:
    data: bytes
    done: Done
    kept: bool  # sent on a connection kept from before: if that proves dead, another one is opened
    most: int = 0  # bytes of an answer; 0: any number
    sent: int = 0
    received: bytearray = field(default_factory=bytearray)


class Channel:
    """See the module. `name` tells its timers apart."""

    def __init__(
        self, name: str, endpoint: Endpoint, loop: Loop, context: ssl.SSLContext | None = None
    ) -> None:
        self._name = name
        self._connecting = f"{name}-connect"
        self._endpoint = endpoint
        self._loop = loop
        self._context = context
        self._sock: Any = None
        self._step: Step = self._send
        self._request: _Request | None = None
        self._stale = False

    @property
    def busy(self) -> bool:
        """Whether a request waits for its answer."""
        return self._request is not None

    def post(
        self,
        path: str,
        body: bytes,
        token: str,
        done: Done,
        *,
        timeout_s: float,
        kind: str = "application/json",
    ) -> None:
        """Send; `done` is called once, later, from the loop. The channel must not be busy. An empty token: none is
        sent."""
        fields = f"Authorization: Bearer {token}\r\n" if token else ""
        fields += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        self._begin_request(f"POST {self._endpoint.prefix}{path}", fields, body, done, timeout_s)

    def get(self, path: str, done: Done, *, timeout_s: float, fields: str = "") -> None:
        """The same without a body and without a token: what everybody may know. `fields`: whole lines of the head."""
        self._begin_request(
            f"GET {self._endpoint.prefix}{path}", fields, b"", done, timeout_s, MOST_ANONYMOUS
        )

    def put(self, path: str, done: Done, *, timeout_s: float, fields: str) -> None:
        """The same, for what is asked for by PUT without a body."""
        fields += "Content-Length: 0\r\n"
        self._begin_request(
            f"PUT {self._endpoint.prefix}{path}", fields, b"", done, timeout_s, MOST_ANONYMOUS
        )

    def use(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        """From the next connection on, and no request goes over the present one any more."""
        self._endpoint, self._context = endpoint, context
        if self._request is None:
            self._drop()
        else:
            self._stale = True

    def _begin_request(
        self, what: str, fields: str, body: bytes, done: Done, timeout_s: float, most: int = 0
    ) -> None:
        head = f"{what} HTTP/1.1\r\nHost: {self._endpoint.authority}\r\n{fields}\r\n"
        self._request = _Request(head.encode() + body, done, kept=self._sock is not None, most=most)
        self._loop.after(self._name, timeout_s, lambda: self._deliver(Failure("no answer in time")))
        outcome = self._begin()
        if outcome is not None:
            self._loop.after(self._name, 0, lambda: self._deliver(outcome))

    def close(self) -> None:
        """Drop the connection and forget the request, without a call."""
        self._request = None
        self._loop.cancel(self._name)
        self._drop()

    def _begin(self) -> Outcome | None:
        if self._sock is not None:
            self._step = self._send
            return self._advance()
        try:
            return self._open()
        except OSError as error:
            return _failure(error)

    def _ready(self, _: int) -> None:
        outcome = self._advance()
        if outcome is not None:
            self._deliver(outcome)

    def _advance(self) -> Outcome | None:
        """Take steps until one has to wait, or there is an outcome."""
        try:
            while True:
                result = self._step()
                if not isinstance(result, int):
                    return result
                if result != GO_ON:
                    self._loop.watch(self._sock.fileno(), result, self._ready)
                    return None
        except OSError as error:
            return self._on_error(error)

    def _on_error(self, error: OSError) -> Outcome | None:
        if self._request is None:
            self._drop()
            return None
        wants = _tls_wants(error) or (READ if isinstance(error, BlockingIOError) else 0)
        if wants:
            self._loop.watch(self._sock.fileno(), wants, self._ready)
            return None
        if self._request.kept and not self._request.received:
            self._request.kept, self._request.sent = False, 0
            self._drop()
            return self._begin()
        new_tls = self._context is not None and self._step != self._connected and not self._request.received
        return _failure(error, new_tls=new_tls)

    def _deliver(self, outcome: Outcome) -> None:
        request, self._request = self._request, None
        self._loop.cancel(self._name)
        if isinstance(outcome, Failure) or outcome.closes or self._stale:
            self._drop()
        if request is not None:
            request.done(outcome)

    def _drop(self) -> None:
        self._stale = False
        self._loop.cancel(self._connecting)
        if self._sock is not None:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            self._sock = None

    # --- the steps of one request: each says what to wait for, GO_ON, or the answer ----------------------------------

    def _open(self) -> Outcome | None:
        family, address = self._address()
        self._sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if family != socket.AF_UNIX:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        code = self._sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        self._step = self._connected
        self._loop.after(
            self._connecting, CONNECT_TIMEOUT_S, lambda: self._deliver(Failure("no connection in time"))
        )
        self._loop.watch(self._sock.fileno(), WRITE, self._ready)
        return None

    def _address(self) -> tuple[int, Any]:
        if self._endpoint.unix:
            return socket.AF_UNIX, self._endpoint.unix
        found = socket.getaddrinfo(self._endpoint.host, self._endpoint.port, type=socket.SOCK_STREAM)
        return found[0][0], found[0][4]

    def _connected(self) -> int | Reply:
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if self._context is None or not self._endpoint.tls:
            return self._established()
        # The descriptor stays the same, so what the loop watches does too.
        self._sock = self._context.wrap_socket(
            self._sock, do_handshake_on_connect=False, server_hostname=self._endpoint.host
        )
        self._step = self._handshake
        return GO_ON

    def _handshake(self) -> int | Reply:
        self._sock.do_handshake()
        return self._established()

    def _established(self) -> int:
        self._loop.cancel(self._connecting)
        self._step = self._send
        return GO_ON

    def _send(self) -> int | Reply:
        request = self._request
        if request is None:
            raise ConnectionError(errno.EPIPE, "the request was given up")
        try:
            while request.sent < len(request.data):
                request.sent += self._sock.send(request.data[request.sent : request.sent + _CHUNK])
        except BlockingIOError:
            return WRITE
        self._step = self._receive
        return READ

    def _receive(self) -> int | Reply:
        """Also called when an idle connection stirs: then the controller closes it, or speaks unasked."""
        while True:
            data = self._sock.recv(_CHUNK)
            request = self._request
            if request is None:
                raise ConnectionResetError(errno.ECONNRESET, "closed while idle")
            request.received += data
            reply = parse_reply(bytes(request.received), closed=not data)
            if reply is not None:
                return reply
            if request.most and len(request.received) > request.most:
                raise ConnectionError(errno.EMSGSIZE, "the answer is too long")
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the controller closed the connection")


def _tls_wants(error: OSError) -> int:
    """What a TLS socket waits for before the same step can be taken again; 0 for another error."""
    name = type(error).__name__
    return {"SSLWantReadError": READ, "SSLWantWriteError": WRITE}.get(name, 0)


def _failure(error: OSError, *, new_tls: bool = False) -> Failure:
    """`new_tls`: it came at a TLS handshake, or after one before the first byte of an answer."""
    absent = (errno.ECONNREFUSED, errno.ENOENT)  # ENOENT: no such Unix socket
    name = type(error).__name__
    if name == "SSLCertVerificationError":
        why = getattr(error, "verify_message", "")
        return Failure(f"who answers there is not the controller that is trusted here: {why}")
    text = error.strerror or str(error)
    hung_up = new_tls and (isinstance(error, ConnectionError) or name in ("SSLError", "SSLEOFError"))
    return Failure(text, refused=error.errno in absent, hung_up=hung_up)


def parse_reply(data: bytes, *, closed: bool) -> Reply | None:
    """A whole answer, or None if more has to come; ConnectionError if it is none."""
    try:
        return _parse(data, closed)
    except ValueError:
        raise ConnectionError(errno.EPROTO, f"not an HTTP answer: {data[:60]!r}") from None


def _parse(data: bytes, closed: bool) -> Reply | None:
    """Informational answers are skipped."""
    head, mark, rest = data.partition(b"\r\n\r\n")
    if not mark:
        if len(data) > MAX_HEAD:
            raise ConnectionError(errno.EPROTO, "the answer's head is too long")
        return None
    lines = head.split(b"\r\n")
    status = _status(lines[0])
    if 100 <= status < 200:
        return _parse(rest, closed)
    fields = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])
    }
    closes = closed or fields.get(b"connection", b"").lower() == b"close"
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = _unchunk(rest)
        return None if body is None else Reply(status, body, closes)
    length = fields.get(b"content-length")
    if length is None:
        return Reply(status, rest, True) if closed or status in (204, 304) else None
    size = _size(length, 10)
    return Reply(status, rest[:size], closes) if len(rest) >= size else None


def _size(text: bytes, base: int) -> int:
    size = int(text, base)
    if size < 0:
        raise ValueError("a negative length")
    return size


def _status(line: bytes) -> int:
    words = line.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError(line)
    return int(words[1])


def _unchunk(data: bytes) -> bytes | None:
    body = bytearray()
    while True:
        size_line, mark, data = data.partition(b"\r\n")
        if not mark:
            return None
        size = _size(size_line.split(b";")[0], 16)
        if size == 0:
            return bytes(body) if data.endswith(b"\r\n") else None
        if len(data) < size + 2:
            return None
        body += data[:size]
        data = data[size + 2 :]
