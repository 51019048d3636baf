"""The server as a process: sockets, peers, TLS, stop, takeover, and connections that misbehave."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import Client
from orchestrator.model.errors import GanglineError, Unauthenticated, Unavailable
from tests.api.listening import Listening
from tests.api.served import document

pytestmark = pytest.mark.system

Start = Callable[..., Listening]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers on the test's own state folder, and ends them."""
    running: list[Listening] = []

    def run(**how: Any) -> Listening:
        running.append(Listening(tmp_path / "s", **how))
        return running[-1]

    yield run
    for server in running:
        server.kill()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """A server for tests that leave it as it is; what they send makes it log no traceback."""
    server = Listening(tmp_path_factory.mktemp("s") / "s").wait_ready()
    yield server
    code, _, err = server.stop()
    assert (code, "Traceback" in err) == (0, False), err


one_server = pytest.mark.xdist_group("api-server")


def test_answers_on_loopback_and_on_its_socket(start: Start) -> None:
    server = start().wait_ready()

    with server.client() as local, Client(server.url, server.admin_token) as remote:
        made = local.submit(document())
        assert remote.job(made.id).name == "j"
        assert remote.status().epoch == server.endpoint()["epoch"]


@one_server
def test_files_of_state_are_the_owners_alone(running: Listening) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in running.state.iterdir()}
    assert modes.pop("api.sock") == 0o666  # who they are, the kernel tells
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(running.state.stat().st_mode) == 0o700


@one_server
def test_tcp_asks_for_a_token(running: Listening) -> None:
    with Client(running.url) as client, pytest.raises(Unauthenticated):
        client.status()


def test_admin_token_stays_and_a_revoked_one_is_replaced(start: Start) -> None:
    first = start().wait_ready()
    secret = first.admin_token
    first.stop()

    second = start().wait_ready()
    assert second.admin_token == secret
    with second.client() as client:
        client.revoke_token(client.tokens()[0].id)
    second.stop()

    third = start().wait_ready()
    assert third.admin_token != secret
    with Client(third.url, secret) as client, pytest.raises(Unauthenticated):
        client.status()
    with Client(third.url, third.admin_token) as client:
        assert client.status().epoch


@pytest.mark.needs("root")
def test_kernel_tells_who_sits_at_the_other_end(start: Start) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = start(unix_path=f"{folder}/api.sock").wait_ready()
        script = (
            "import os, sys, json; from orchestrator.client import Client; import orchestrator.wire.api_cluster;"
            "import httpx2, encodings.idna; os.setgroups([]); os.setgid(1); os.setuid(1); c = Client(sys.argv[1]);"
            "print(c.job(c.submit(json.loads(sys.argv[2])).id).owner, flush=True); c.recover()"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, f"unix://{server.socket}", json.dumps(document())],
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.stdout == "daemon\n", done.stderr
    assert "this takes the role operator, and daemon has submit" in done.stderr


def test_stop_answers_who_waits_and_cuts_nobody_off(start: Start) -> None:
    server = start().wait_ready()
    told: list[GanglineError] = []
    with server.client(patience_s=0) as client:
        job = client.submit(document(hold=True)).id

        def wait() -> None:
            try:
                client.wait_once(job, 60)
            except GanglineError as error:
                told.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        _until_poll(server)

        code, _, err = server.stop()  # far sooner than the wait would end

        waiting.join(10)
    assert (code, [error.code for error in told]) == (0, ["controller.stopping"]), err
    assert "graceful shutdown exceeded" not in err
    assert server.endpoint() == {}
    assert not Path(server.state / "api.sock").exists()
    assert "Traceback" not in err


def _until_poll(server: Listening) -> None:
    """Until a long poll is held: the server has read its request, so that a later one is answered after it."""
    with server.client() as other:
        for _ in range(3):
            other.status()


def test_acknowledged_jobs_survive_sigkill(start: Start) -> None:
    server = start().wait_ready()
    with server.client() as client:
        ids = [client.submit(document(hold=True)).id for _ in range(20)]
    server.stop(signal.SIGKILL)

    with start().wait_ready().client() as client:
        assert [client.job(job).state for job in ids] == ["held"] * 20


def test_newer_controller_takes_over_and_the_older_one_says_so(start: Start) -> None:
    older = start().wait_ready()
    with Client(older.url, older.admin_token, patience_s=0) as client:
        newer = start().wait_ready()
        with pytest.raises(Unavailable):
            client.submit(document(hold=True))

    code, out, err = older.ended()

    assert code == 1
    assert json.loads(out)["code"] in ("ledger.fenced", "controller.fenced")
    assert "Traceback" not in err
    with newer.client() as client:
        assert client.status().epoch == newer.endpoint()["epoch"]


def test_two_on_one_port_is_told_before_the_ledger_is_touched(start: Start) -> None:
    first = start().wait_ready()

    code, out, _ = start(address=f"127.0.0.1:{first.port}").ended()

    assert (code, json.loads(out)["code"]) == (1, "server.address-in-use")
    with first.client() as client:
        assert client.status().epoch == first.endpoint()["epoch"]


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_other_machines_need_tls(start: Start) -> None:
    code, out, _ = start(address="0.0.0.0:0").ended()

    told = json.loads(out)
    assert (code, told["code"]) == (2, "server.tls-required")
    assert "--tls-cert and --tls-key" in told["hint"]


def test_an_authority_of_its_own_signs_for_the_names_that_are_given(start: Start) -> None:
    server = start(own_ca=["localhost", "127.0.0.1"]).wait_ready()
    tls = server.state / "tls"

    with Client(server.url, server.admin_token, ca_file=str(tls / "ca.pem")) as client:
        assert client.status().epoch == server.endpoint()["epoch"]
    assert stat.S_IMODE((tls / "ca.key").stat().st_mode) == 0o600
    before = (tls / "ca.pem").read_bytes(), (tls / "server.pem").read_bytes()
    server.stop()
    start(own_ca=["localhost", "127.0.0.1"]).wait_ready()
    assert ((tls / "ca.pem").read_bytes(), (tls / "server.pem").read_bytes()) == before


def test_one_certificate_or_the_other(start: Start) -> None:
    code, out, _ = start(own_ca=["localhost"], tls_cert="x.pem", tls_key="x.key").ended()
    assert (code, json.loads(out)["code"]) == (2, "server.tls")


def test_systemd_is_told_when_it_answers_and_when_it_stops(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"{folder}/notify")
        heard.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{folder}/notify")
        server = start()
        assert heard.recv(4096).startswith(b"READY=1\nSTATUS=epoch ")
        with server.client() as client:
            assert client.healthy()
        server.stop()
        assert heard.recv(4096) == b"STOPPING=1"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program 'openssl' (Debian package openssl)")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return cert, key


def test_tls_on_all_addresses(start: Start, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    server = start(address="0.0.0.0:0", tls_cert=str(cert), tls_key=str(key)).wait_ready()
    url = f"https://127.0.0.1:{server.port}"

    assert server.url.startswith("https://")
    with Client(url, server.admin_token, ca_file=str(cert)) as client:
        assert client.status().cluster == ""
    with Client(url, server.admin_token, patience_s=0) as client, pytest.raises(Unavailable) as caught:
        client.status()
    assert caught.value.code == "client.certificate"
    assert "GANGLINE_CA" in caught.value.hint


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_tls_is_refused(start: Start, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    server = start(tls_cert=str(cert), tls_key=str(key)).wait_ready()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")

    with socket.create_connection(("127.0.0.1", server.port)) as raw, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(raw, server_hostname="127.0.0.1")


# --- connections that misbehave -------------------------------------------------------------------------------------


def _exchange(server: Listening, data: bytes) -> tuple[int, bytes]:
    """What comes back on one connection until the server closes it: the first status, and all bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        try:
            sock.sendall(data)
        except OSError:
            pass  # it has heard enough
        received = b""
        try:
            while piece := sock.recv(65536):
                received += piece
        except ConnectionError:
            pass
    return int(received.split(b" ", 2)[1]) if received else 0, received


HEAD = b"GET /api/v1/healthz HTTP/1.1\r\nHost: x\r\n"


@one_server
@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"\x16\x03\x01\x02\x00hello\r\n\r\n", 400, b"request.not-http"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, b"request.not-http"),
        (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, b"request.not-http"),
        (HEAD + b"X: " + b"x" * 70_000 + b"\r\n\r\n", 431, b"request.head-too-large"),
        (HEAD + b"X: y\r\n" * 12_000 + b"\r\n", 431, b"request.head-too-large"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, b"request.head-too-large"),
    ],
)
def test_what_is_no_http_is_told_and_ended(running: Listening, data: bytes, status: int, code: bytes) -> None:
    found, received = _exchange(running, data)

    assert (found, code in received) == (status, True), received[:500]
    assert b"application/problem+json" in received


def test_head_that_does_not_come_to_an_end_is_not_waited_for(start: Start) -> None:
    server = start(patch={"orchestrator.api.protocol.HEAD_S": 0.2}).wait_ready()

    started = time.monotonic()
    status, received = _exchange(server, HEAD)
    silent, nothing = _exchange(server, b"")

    assert (status, b"request.too-slow" in received) == (408, True)
    assert (silent, nothing) == (0, b"")
    assert time.monotonic() - started < 15


@one_server
def test_odd_targets_get_a_problem(running: Listening) -> None:
    for target in (
        b"*",
        b"http://other/api/v1/healthz",
        b"/%ff%fe",
        b"//",
        b"/api/v1/jobs?%zz&&=",
        b"/\xc3\xa9",
    ):
        status, received = _exchange(
            running, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert status in (200, 400, 401, 404), (target, received)
        assert status == 200 or b"application/problem+json" in received, (target, received)


@one_server
def test_kept_connection_serves_many_requests(running: Listening) -> None:
    one = HEAD + b"\r\n"
    last = HEAD + b"Connection: close\r\n\r\n"

    _, received = _exchange(running, one * 50 + last)

    assert received.count(b"HTTP/1.1 200 OK") == 51


@one_server
def test_server_may_open_as_many_files_as_the_hard_limit_says(running: Listening) -> None:
    (line,) = [
        line
        for line in Path(f"/proc/{running.process.pid}/limits").read_text().splitlines()
        if "open files" in line
    ]
    soft, hard = line.split()[3:5]
    assert soft == hard


@one_server
def test_answers_can_not_be_kept_by_caches(running: Listening) -> None:
    _, received = _exchange(running, HEAD + b"Connection: close\r\n\r\n")

    assert b"cache-control: no-store" in received
    assert b"server:" not in received.lower().partition(b"\r\n\r\n")[0]
