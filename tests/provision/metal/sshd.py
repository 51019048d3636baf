"""Real OpenSSH servers on loopback addresses, and servers that misbehave, all on one port.

Comes in: behaviours by address. Goes out: `Servers` with the port, keys (one is let in), and how often each address was
connected to. Called by: the system tests of SSH and probe. Each connection gets an `sshd -i` of its own, which ends
with it or with the test.
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests import capabilities

CONFIG = """HostKey {folder}/{host_key}
AuthorizedKeysFile {folder}/{authorized}
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel ERROR
AcceptEnv none
"""
# What listens: an SSH server with host key A or B, one that trusts nobody, something that never speaks, a web server.
GOOD, OTHER_KEY, TRUSTS_NOBODY, SILENT, WEB, ENDS = (
    "good",
    "other-key",
    "trusts-nobody",
    "silent",
    "web",
    "ends",
)


class Servers:
    """Listeners on 127.0.0.0/8; what an address does can be changed while it listens."""

    def __init__(self, folder: Path, behaviours: Mapping[str, str]) -> None:
        self.folder = folder
        self.does = dict(behaviours)
        self.connections = dict.fromkeys(behaviours, 0)
        self.connected = threading.Event()  # anybody, at any address
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.key = folder / "client"
        self._open: list[socket.socket] = []
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._make_keys()
        self.port, self._listeners = _listen(list(behaviours))
        self._threads = [
            threading.Thread(target=self._serve, args=(address, listener), daemon=True)
            for address, listener in self._listeners.items()
        ]

    def __enter__(self) -> Servers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for listener in self._listeners.values():
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self._threads:
            thread.join()
        self.hang_up()

    def hang_up(self) -> None:
        """End every connection at once, as a host does that loses power."""
        with self._lock:
            for process in self._running:
                process.kill()
                process.wait()
            for connection in self._open:
                connection.close()
            self._running.clear()
            self._open.clear()

    def _make_keys(self) -> None:
        for name, word in (
            ("client", ""),
            ("locked", "secret"),
            ("stranger", ""),
            ("host-a", ""),
            ("host-b", ""),
        ):
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", word, "-f", str(self.folder / name)]
            subprocess.run(make, check=True)
        trusted = [(self.folder / f"{name}.pub").read_text() for name in ("client", "locked")]
        (self.folder / "trusted").write_text("".join(trusted))
        (self.folder / "nobody").write_text("")
        for name, key, trusts in (
            (GOOD, "host-a", "trusted"),
            (OTHER_KEY, "host-b", "trusted"),
            (TRUSTS_NOBODY, "host-a", "nobody"),
        ):
            text = CONFIG.format(folder=self.folder, host_key=key, authorized=trusts)
            (self.folder / f"sshd-{name}").write_text(text)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd as root refuses to start without it

    def _serve(self, address: str, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connected.set()
            with self._lock:
                self.connections[address] += 1
                self._answer(self.does[address], connection)

    def _answer(self, does: str, connection: socket.socket) -> None:
        if does == WEB:
            connection.recv(64)  # the client's own first words: a close with unread data would be a reset
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        if does in (WEB, ENDS):
            connection.close()
        elif does == SILENT:
            self._open.append(connection)
        else:
            server = capabilities.sshd()
            argv = [str(server), "-i", "-e", "-f", str(self.folder / f"sshd-{does}")]
            with connection, (self.folder / "sshd.log").open("ab") as log:
                handle = connection.fileno()
                self._running.append(subprocess.Popen(argv, stdin=handle, stdout=handle, stderr=log))


def _listen(addresses: list[str]) -> tuple[int, dict[str, socket.socket]]:
    """One free port on all of them; another one is tried where a stranger has it on one of them."""
    for _ in range(100):
        first = socket.create_server((addresses[0], 0), backlog=64)
        found = {addresses[0]: first}
        port = first.getsockname()[1]
        try:
            for address in addresses[1:]:
                found[address] = socket.create_server((address, port), backlog=64)
            return port, found
        except OSError:
            for listener in found.values():
                listener.close()
    raise OSError(f"no port is free on all of {addresses}")
