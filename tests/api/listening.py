"""A real server process on loopback and a Unix socket.

Comes in: a folder, options. Goes out: its addresses, its end. Called by: system tests of api and client. The process is
the one that `gangline server run` starts: `serve.main` with options from JSON; `patch` sets module constants before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.client import Client

CHILD = """
import importlib, json, sys
from pathlib import Path
from orchestrator.api import serve
from orchestrator.model.errors import GanglineError
how = json.loads(sys.argv[1])
for name, value in how.pop("patch").items():
    module, _, constant = name.rpartition(".")
    setattr(importlib.import_module(module), constant, value)
try:
    code = serve.main(serve.Options(state=Path(how.pop("state")), **how))
except GanglineError as error:
    print(json.dumps({"code": error.code, "message": error.message, "hint": error.hint}))
    code = error.exit_code
sys.exit(code)
"""


class Listening:
    """One server process; `wait_ready` returns when it answers."""

    def __init__(self, state: Path, patch: dict[str, Any] | None = None, **options: Any) -> None:
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps({"state": str(state), "patch": patch or {}} | options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self, timeout_s: float = 30) -> Listening:
        """Until this very process has written where it answers."""
        deadline = time.monotonic() + timeout_s
        while self.endpoint().get("pid") != self.process.pid:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended: {self.process.communicate()}")
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.01)
        return self

    def endpoint(self) -> dict[str, Any]:
        """STATE/endpoint.json, or nothing."""
        try:
            found: dict[str, Any] = json.loads((self.state / "endpoint.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    @property
    def url(self) -> str:
        """Where it answers over TCP."""
        return str(self.endpoint()["url"])

    @property
    def port(self) -> int:
        """The port of that."""
        return int(self.url.rpartition(":")[2])

    @property
    def socket(self) -> str:
        """Its Unix socket."""
        return str(self.endpoint()["socket"])

    @property
    def admin_token(self) -> str:
        """The admin's secret."""
        return (self.state / "admin.token").read_text().strip()

    def client(self, **how: Any) -> Client:
        """A client on the Unix socket, as whoever runs the test."""
        return Client(f"unix://{self.socket}", **how)

    def stop(self, kind: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Ask it to end: its exit code, stdout, stderr."""
        os.kill(self.process.pid, kind)
        return self.ended()

    def ended(self, timeout_s: float = 20) -> tuple[int, str, str]:
        """Wait for its end: its exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def kill(self) -> None:
        """Whatever is left of it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
