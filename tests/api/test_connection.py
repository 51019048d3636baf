"""What a connection's end does: a long poll that nobody waits for any more goes away. Over a Unix socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api import listen, serve
from orchestrator.model.codec import encode
from tests.api.served import PREFIX, Served, document, two_nodes, until

Request = Callable[..., bytes]


class Socket:
    """A served controller that listens on a Unix socket too."""

    def __init__(self, served: Served, path: Path) -> None:
        self.served = served
        self.path = path
        self.errors: list[BaseException] = []
        ready = []
        sock = listen.bind_unix(path)
        self.serving = served.start(
            serve.run_server(served.controller, None, sock, None, lambda: ready.append(True))
        )
        until(lambda: bool(ready))

    def connect(self) -> socket.socket:
        """A new connection."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(20)
        sock.connect(str(self.path))
        return sock


def request(method: str, path: str, token: str, body: object = None) -> bytes:
    """The bytes of a request."""
    raw = json.dumps(body).encode() if body is not None else b""
    head = (
        f"{method} {PREFIX}{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


@pytest.fixture
def unix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Socket]:
    served = Served(tmp_path, two_nodes())
    monkeypatch.setattr(serve, "Hub", lambda *_: served.hub)
    found = Socket(served, tmp_path / "a.sock")
    yield found
    served.controller.stop()
    found.serving.result(20)
    served.close()


def test_poll_ends_with_its_connection(unix: Socket) -> None:
    job = unix.served.submit(document(hold=True))
    sock = unix.connect()
    sock.sendall(request("GET", f"/jobs/{job}/wait?timeout=60", unix.served.token("admin", "root")))
    until(lambda: len(unix.served.hub._polls) == 1)

    sock.close()

    until(lambda: not unix.served.hub._polls)


def test_agent_that_has_gone_is_not_heard_any_more(unix: Socket, caplog: pytest.LogCaptureFixture) -> None:
    """Else a dead node would count as heard when its idle poll runs out."""
    agent = unix.served.agents["p-1"]
    beat = encode(replace(agent.request(), wait_s=100))
    sock = unix.connect()
    sock.sendall(request("POST", "/agent/sync", unix.served.token("node", "p-1"), beat))
    until(lambda: len(unix.served.hub._polls) == 1)
    unix.served.clock.advance(50)

    sock.close()

    until(lambda: not unix.served.hub._polls)
    assert unix.served.controller.beats.silent_us("p-1") == 50_000_000
    assert "Traceback" not in caplog.text
    assert not caplog.records


def test_end_of_the_core_ends_the_server(unix: Socket) -> None:
    unix.served.controller.stop()

    unix.serving.result(20)

    with socket.socket(socket.AF_UNIX) as sock, pytest.raises(ConnectionRefusedError):
        sock.connect(str(unix.path))
