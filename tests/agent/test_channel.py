"""Answers in pieces, URLs, and a connection over TCP, TLS and a Unix socket."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.channel import Channel, Endpoint, Failure, Outcome, Reply, parse_reply, parse_url
from orchestrator.agent.loop import Loop
from orchestrator.model.clock import SystemClock

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("http://h:8080", Endpoint("h", 8080)),
        ("http://h", Endpoint("h", 80)),
        ("https://h.example.org", Endpoint("h.example.org", 443, tls=True)),
        ("https://[::1]:7443/base/", Endpoint("::1", 7443, tls=True, prefix="/base")),
        ("https://[fe80::1%eth0]", Endpoint("fe80::1%eth0", 443, tls=True)),
        ("http://a_b.c-d.:80", Endpoint("a_b.c-d.", 80)),
        ("unix:/run/x.sock", Endpoint(unix="/run/x.sock")),
        ("unix:/srv/my ledgers/é.sock", Endpoint(unix="/srv/my ledgers/é.sock")),
        ("unix:///run/x.sock", Endpoint(unix="/run/x.sock")),
    ],
)
def test_urls(url: str, want: Endpoint) -> None:
    assert parse_url(url) == want


def test_host_header() -> None:
    assert parse_url("http://h").authority == "h:80"
    assert parse_url("https://[::1]").authority == "[::1]:443"
    assert parse_url("unix:/x").authority == "localhost"


@pytest.mark.parametrize("url", ["h:80", "ftp://h", "http://", ""])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected|missing"):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:secret@h:7443",
        "https://a..b",
        f"https://{'a' * 64}",
        "https://h\0",
        "https://h\r\nHost: x",
        "https://h/\r\nX: y",
        "https://h:0",
        "https://h:65536",
        "https://h:-1",
        "https://h:",
        "https://h:²",
        "https://[::1",
        "https://[x y]:1",
        "https://::1",
        "https://é",
        "unix:/run/x\0",
    ],
)
def test_what_a_resolver_would_choke_on_is_refused_before(url: str) -> None:
    """A join token's line is written by hand: a slip there must not end an agent."""
    with pytest.raises(ValueError, match=r"expected|host|address|port|password|characters"):
        parse_url(url)


@pytest.mark.parametrize("whole", [PLAIN, CHUNKED, CONTINUED])
def test_answer_is_whole_only_at_its_last_byte(whole: bytes) -> None:
    assert all(parse_reply(whole[:cut], closed=False) is None for cut in range(len(whole)))
    assert parse_reply(whole, closed=False) == Reply(200, b"hello")


def test_answer_without_length_ends_with_the_connection() -> None:
    data = b"HTTP/1.0 503 Busy\r\n\r\nlater"
    assert parse_reply(data, closed=False) is None
    assert parse_reply(data, closed=True) == Reply(503, b"later", closes=True)


def test_answer_may_close_the_connection() -> None:
    data = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    assert parse_reply(data, closed=False) == Reply(200, b"", closes=True)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 two OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(ConnectionError):
        parse_reply(data, closed=False)


@pytest.mark.property
@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_an_error_or_too_few(data: bytes) -> None:
    for head in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        try:
            result = parse_reply(head + data, closed=False)
        except ConnectionError:
            continue
        assert result is None or isinstance(result, Reply)


Served = tuple[Endpoint, "Server", ssl.SSLContext | None]

# --- over real sockets ---------------------------------------------------------------------------------------------


class Server:
    """Answers each request with its body; closes after `per_connection` answers."""

    def __init__(
        self, sock: socket.socket, wrap: Callable[[socket.socket], socket.socket], per_connection: int
    ) -> None:
        self.sock, self.wrap, self.per_connection = sock, wrap, per_connection
        self.connections = 0
        sock.listen(5)
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.sock.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            client = self.wrap(client)
            for _ in range(self.per_connection):
                self._answer(client)
        except OSError:
            pass
        finally:
            client.close()

    def _answer(self, client: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            more = client.recv(65536)
            if not more:
                raise ConnectionResetError
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + body)

    def close(self) -> None:
        self.sock.close()


def post(loop: Loop, channel: Channel, body: bytes, timeout_s: float = 10.0) -> Outcome:
    """One request, with the loop until its answer."""
    found: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        found.append(outcome)
        loop.stop()

    channel.post("/x", body, "t", done, timeout_s=timeout_s)
    loop._running = True
    loop.run(lambda: None)
    return found[0]


@pytest.fixture
def loop() -> Loop:
    return Loop(SystemClock())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate for 127.0.0.1 in one file."""
    return make_certificate(tmp_path)


def make_certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the program 'openssl' (Debian package openssl)")
    path = tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", f"{path}.c"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(str(path) + ".c").read_text())
    return path


@pytest.fixture(params=["tcp", "unix", "tls"])
def served(request: pytest.FixtureRequest, tmp_path: Path, certificate: Path) -> Iterator[Served]:
    wrap: Callable[[socket.socket], socket.socket] = lambda client: client  # noqa: E731
    context = None
    if request.param == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / "s"))
        endpoint = Endpoint(unix=str(tmp_path / "s"))
    else:
        sock = socket.create_server(("127.0.0.1", 0))
        endpoint = Endpoint("127.0.0.1", sock.getsockname()[1], tls=request.param == "tls")
    if request.param == "tls":
        theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        theirs.load_cert_chain(certificate)
        wrap = lambda client: theirs.wrap_socket(client, server_side=True)  # noqa: E731
        context = ssl.create_default_context(cafile=str(certificate))
    server = Server(sock, wrap, 3)
    yield endpoint, server, context
    server.close()


@pytest.mark.system
def test_requests_share_a_connection_and_survive_its_end(loop: Loop, served: Served) -> None:
    endpoint, server, context = served
    channel = Channel("c", endpoint, loop, context)
    for number in range(8):
        body = b"%d" % number * (1 if number % 2 else 300_000)
        assert post(loop, channel, body) == Reply(200, body)
    assert server.connections == 3, "three answers on each connection"
    channel.close()


@pytest.mark.system
def test_another_context_is_used_from_the_next_connection_on(loop: Loop, served: Served) -> None:
    endpoint, server, context = served
    channel = Channel("c", endpoint, loop, context)
    assert post(loop, channel, b"1") == Reply(200, b"1")
    channel.use(endpoint, context)
    assert post(loop, channel, b"2") == Reply(200, b"2")
    channel.post("/x", b"3", "t", lambda _: None, timeout_s=10)
    channel.use(endpoint, context)
    channel.close()
    assert server.connections == 2
    assert post(loop, channel, b"4") == Reply(200, b"4")
    assert server.connections == 3
    channel.close()


@pytest.mark.system
def test_who_ends_a_new_tls_connection_without_a_word_has_hung_up(loop: Loop, certificate: Path) -> None:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate)
    ours = ssl.create_default_context(cafile=str(certificate))
    sock = socket.create_server(("127.0.0.1", 0))
    server = Server(sock, lambda client: theirs.wrap_socket(client, server_side=True), 0)
    endpoint = Endpoint("127.0.0.1", sock.getsockname()[1], tls=True)
    outcome = post(loop, Channel("c", endpoint, loop, ours), b"x")
    assert isinstance(outcome, Failure)
    assert (outcome.hung_up, outcome.refused) == (True, False)
    server.close()
    plain = Server(socket.create_server(("127.0.0.1", 0)), lambda client: client, 0)
    outcome = post(loop, Channel("d", Endpoint("127.0.0.1", plain.sock.getsockname()[1]), loop), b"x")
    assert isinstance(outcome, Failure)
    assert not outcome.hung_up, "without TLS it is about no key"
    plain.close()


@pytest.mark.system
def test_an_anonymous_answer_may_not_be_endless(loop: Loop) -> None:
    sock = socket.create_server(("127.0.0.1", 0))

    def flood() -> None:
        client, _ = sock.accept()
        with client, suppress(OSError):
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")
            while True:
                client.sendall(b"x" * 65536)

    thread = threading.Thread(target=flood)
    thread.start()
    found: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        found.append(outcome)
        loop.stop()

    Channel("c", Endpoint("127.0.0.1", sock.getsockname()[1]), loop).get("/x", done, timeout_s=20)
    loop._running = True
    loop.run(lambda: None)
    assert found == [Failure("the answer is too long")]
    thread.join(20)
    sock.close()


@pytest.mark.system
def test_nobody_listens(loop: Loop, tmp_path: Path) -> None:
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    for endpoint in (Endpoint("127.0.0.1", port), Endpoint(unix=str(tmp_path / "none"))):
        outcome = post(loop, Channel("c", endpoint, loop), b"x")
        assert isinstance(outcome, Failure)
        assert outcome.refused


@pytest.mark.system
def test_no_answer_in_time(loop: Loop) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    channel = Channel("c", Endpoint("127.0.0.1", silent.getsockname()[1]), loop)
    assert post(loop, channel, b"x", 0.2) == Failure("no answer in time")
    assert not channel.busy
    silent.close()


@pytest.mark.system
def test_certificate_that_nobody_vouches_for(loop: Loop, certificate: Path) -> None:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate)
    sock = socket.create_server(("127.0.0.1", 0))
    server = Server(sock, lambda client: theirs.wrap_socket(client, server_side=True), 1)
    endpoint = Endpoint("127.0.0.1", sock.getsockname()[1], tls=True)
    outcome = post(loop, Channel("c", endpoint, loop, ssl.create_default_context()), b"x")
    assert isinstance(outcome, Failure)
    assert "certificate" in outcome.error.lower()
    assert not outcome.refused
    server.close()
