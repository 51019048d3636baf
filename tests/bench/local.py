"""A local cluster to be measured: `gangline up` with real agents, and `gangline down` at the end.

Comes in: a folder on a disk, how many nodes. Goes out: a cluster whose nodes are ready, an admin's client. Called by:
rate, truth.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.client import Client
from tests.bench.common import ROOT, Failed, cpu_s, pss_mb, say
from tests.bench.server import CLUSTER, cluster_text

READY = "3m"
DOWN = "30s"


class Local:
    """What `up` has started; a context manager that takes it down."""

    def __init__(self, folder: Path, nodes: int, gpus: int, more: str = "") -> None:
        """`more` is what its cluster file says besides."""
        self.folder = folder
        self.state = folder / "state" / CLUSTER
        self._nodes = nodes
        self._gpus = gpus
        self._more = more
        self._client: Client | None = None

    def __enter__(self) -> Local:
        self.folder.mkdir(parents=True)
        spec = self.folder / "cluster.yaml"
        spec.write_text(cluster_text(self._nodes, self._gpus) + self._more)
        begun_s = time.monotonic()
        try:
            self._gangline("up", str(spec), "--timeout", READY)
        except BaseException:
            self._down()
            raise
        say(f"{self._nodes} local agents are ready after {time.monotonic() - begun_s:.1f} s")
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
        self._down()

    def _down(self) -> None:
        """Stop all of it; what does not stop by itself is killed by the ids that `up` has kept."""
        pids = self.pids()
        with suppress(Failed):
            self._gangline("down", CLUSTER, "--cancel-jobs", "--timeout", DOWN)
            return
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _gangline(self, *arguments: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GANGLINE_")}
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.cli", *arguments],
            cwd=ROOT,
            env={**kept, "GANGLINE_HOME": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"gangline {arguments[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")

    def pids(self) -> dict[str, int]:
        """The processes that `up` has started, by name: `server`, `agent-NODE`."""
        return {
            path.stem: int(json.loads(path.read_text())["pid"]) for path in (self.state / "up").glob("*.json")
        }

    @property
    def endpoint(self) -> dict[str, Any]:
        """Where the controller answers."""
        found: dict[str, Any] = json.loads((self.state / "endpoint.json").read_text())
        return found

    @property
    def port(self) -> int:
        """Its TCP port on loopback."""
        return int(self.endpoint["url"].rpartition(":")[2])

    @property
    def token(self) -> str:
        """The admin's."""
        return (self.state / "admin.token").read_text().strip()

    @property
    def client(self) -> Client:
        """An admin's client."""
        if self._client is None:
            self._client = Client(self.endpoint["url"], self.token, patience_s=10.0, timeout_s=60.0)
        return self._client

    def server_cpu_s(self) -> float:
        """Processor seconds of the controller so far."""
        return cpu_s(self.pids()["server"])

    def agents_cpu_s(self) -> float:
        """Processor seconds of the agents' daemons so far, without nurseries, shepherds and ranks."""
        return sum(cpu_s(pid) for name, pid in self.pids().items() if name != "server")

    def agent_pss_mb(self) -> float:
        """Mean proportional set size of an agent's daemon, in MB."""
        sizes = [pss_mb(pid) for name, pid in self.pids().items() if name != "server"]
        return sum(sizes) / len(sizes)
