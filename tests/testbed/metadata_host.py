"""An emulated metadata service, as version 2 of EC2's: a token by PUT first, then each question with it.

Comes in: a folder whose files are the answers (`FOLDER/latest/meta-data/…`), where to listen. Goes out: answers; what
is not there is not found. Called by: tests, in their own process over a Unix socket; and as a program inside a
testbed's host:

    python3 metadata_host.py FOLDER 169.254.169.254 80

Files are read for each question, so writing one is how a notice comes. Standard library of Python 3.10.
"""

from __future__ import annotations

import os
import secrets
import socketserver
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

LONGEST_S = 21_600
TOKEN, TTL = "X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds"


class Handler(BaseHTTPRequestHandler):
    """One connection; `folder`, `tokens` and `asked` are the server's."""

    protocol_version = "HTTP/1.1"
    server: Any

    def address_string(self) -> str:
        """Unix sockets have none."""
        return "somebody"

    def log_message(self, *args: Any) -> None:
        """Nothing: what was asked is in `asked`."""

    def do_PUT(self) -> None:
        """A token for as long as was asked."""
        ttl = self.headers.get(TTL, "")
        if self.path != "/latest/api/token" or not ttl.isdecimal() or not 1 <= int(ttl) <= LONGEST_S:
            self._answer(400, b"")
        elif self.headers.get("X-Forwarded-For"):
            self._answer(403, b"")
        else:
            made = secrets.token_urlsafe(40)
            self.server.tokens[made] = time.monotonic() + int(ttl)
            self._answer(200, made.encode())

    def do_GET(self) -> None:
        """A file, for whoever has a token."""
        self.server.asked.append(self.path)
        if self.server.tokens.get(self.headers.get(TOKEN, ""), 0.0) < time.monotonic():
            self._answer(401, b"")
            return
        path = Path(self.server.folder) / self.path.lstrip("/")
        if ".." in self.path or not path.is_file():
            self._answer(404, b"not found")
            return
        self._answer(200, path.read_bytes())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Service:
    """What both kinds of server have."""

    daemon_threads = True
    folder: str
    tokens: dict[str, float]
    asked: list[str]

    def prepare(self, folder: str) -> None:
        """Serve that folder."""
        self.folder, self.tokens, self.asked = folder, {}, []


class UnixService(_Service, socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """On a Unix socket, for tests that open no others."""


class TcpService(_Service, socketserver.ThreadingMixIn, socketserver.TCPServer):
    """On an address, as in the cloud."""

    allow_reuse_address = True


def main(argv: list[str]) -> None:
    """For ever."""
    folder, address, port = argv
    os.makedirs(folder, exist_ok=True)
    with TcpService((address, int(port)), Handler) as server:
        server.prepare(folder)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
