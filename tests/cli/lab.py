"""A real cluster on this machine for system tests: the command as a process, a home of its own, everything swept.

In comes a folder; out go processes' answers. `sweep` ends what is left by process id, whatever a test did.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cli.demo_cmd import processes_of
from orchestrator.client import Client
from orchestrator.model.errors import NotFound
from orchestrator.wire.api import Job

CLUSTER = """apiVersion: gangline/v1
kind: Cluster
metadata: {{name: lab}}
sites: [{{name: here, kind: local}}]
pools:
  - {{name: p, site: here, nodes: "{nodes}", gpu: {{model: H100-SXM5-80GB, count: 4, emulate: always}}}}
queues: [{{name: default}}]
"""
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Lab:
    """One home. `state` is the cluster's state folder in it."""

    home: Path

    @property
    def state(self) -> Path:
        return self.home / "state" / "lab"

    @property
    def file(self) -> Path:
        return self.home / "cluster.yaml"

    def write(self, nodes: str = "n[1-2]") -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.file.write_text(CLUSTER.format(nodes=nodes))

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GANGLINE_")}
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", *arguments],
            env=environment | {"GANGLINE_HOME": str(self.home)} | more,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments, **more) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str) -> dict[str, object]:
        done = self(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def submit(self, *settings: str) -> int:
        """A job of one task that waits for ever unless the settings say otherwise; its id."""
        path = self.home / "job.yaml"
        path.write_text(
            "apiVersion: gangline/v1\nkind: Job\nmetadata: {name: a}\nspec: {tasks: 1, command: sleep 600}\n"
        )
        done = self("submit", str(path), *(word for each in settings for word in ("--set", each)))
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def client(self) -> Client:
        """For looking often: a process for each look costs a third of a second."""
        endpoint = json.loads((self.state / "endpoint.json").read_text())
        return Client(f"unix://{endpoint['socket']}")

    def job(self, number: int) -> Job:
        with self.client() as client:
            return client.job(number)

    def log(self, number: int, rank: int = 0) -> str:
        """What a rank has written so far; empty before its start."""
        with self.client() as client:
            try:
                return client.logs(number, rank).data.decode()
            except NotFound:
                return ""

    def daemons(self) -> dict[str, int]:
        """What `up` has recorded: process ids by name."""
        return {path.stem: json.loads(path.read_text())["pid"] for path in (self.state / "up").glob("*.json")}

    def sweep(self) -> None:
        for pid in processes_of(self.home):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not processes_of(self.home))


def until(there: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Look again until it is so; the deadline only ends a test that has failed."""
    deadline = time.monotonic() + patience_s
    while not there():
        assert time.monotonic() < deadline, "has not come so far in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
