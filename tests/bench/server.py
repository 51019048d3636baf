"""A controller to be measured: `gangline server run` in a process of its own, on a TCP port that stays the same.

Comes in: a folder on a disk. Goes out: a server that answers, an admin's client, what the ledger says of jobs; its end.
Called by: rate, agents, cli.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client import Client
from tests.bench.common import ROOT, Failed, cpu_s
from tests.bench.helper import Helper

if TYPE_CHECKING:
    from orchestrator.wire.api import JobSummary

CLUSTER = "bench"
MODEL = "H100-SXM5-80GB"
HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 20.0
TICK_S = 0.02

OPEN_S = 10.0  # until the last of all agents that have joined is let in


class Server:
    """One controller; a context manager that ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.port = _free_port()
        self.url = f"http://{HOST}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
        if self._process is not None:
            self._end(self._process)

    def start(self) -> None:
        """Start it and wait until it answers. Failed, with the end of its log, if it does not."""
        arguments = ["--state", str(self.state), "--cluster", CLUSTER, "--listen", f"{HOST}:{self.port}"]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.cli", "server", "run", *arguments],
                cwd=ROOT,
                env={name: value for name, value in os.environ.items() if not name.startswith("GANGLINE_")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is the benchmark's, which ends this
            )
        deadline = time.monotonic() + START_S
        with Client(self.url, patience_s=0.0, timeout_s=2.0) as client:
            while not client.healthy():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise Failed(f"the server does not answer; its log ends with:\n{self.last_words()}")
                time.sleep(TICK_S)

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join((self.folder / "server.log").read_text(errors="replace").splitlines()[-20:])

    def kill(self) -> None:
        """SIGKILL, as a power cut would do it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor seconds of all its threads so far."""
        return cpu_s(self.pid)

    @property
    def token(self) -> str:
        """The admin's."""
        return (self.state / "admin.token").read_text().strip()

    @property
    def client(self) -> Client:
        """An admin's client."""
        if self._client is None:
            self._client = Client(self.url, self.token, patience_s=10.0, timeout_s=60.0)
        return self._client

    # --- with emulated agents -----------------------------------------------------------------------------------------

    def populate(self, agents: Helper, nodes: int, gpus: int) -> None:
        """Apply a cluster of so many nodes, and let emulated agents play them."""
        self.play(agents, cluster_text(nodes, gpus), gpus, {"local": MODEL})

    def play(
        self, agents: Helper, cluster: str, gpus: int, models: dict[str, str], *, push: bool = False
    ) -> None:
        """Apply a cluster, and let emulated agents play its nodes; `models`: the GPU model of each pool."""
        self.client.apply_cluster(cluster)
        nodes = {node.name: models[node.pool] for node in self.client.nodes()}
        secret = self.client.create_token("join", "*", 3600).secret
        agents.ask("join", host=HOST, port=self.port, nodes=nodes, token=secret, gpus=gpus, push=push)
        deadline = time.monotonic() + OPEN_S
        while closed := [node.name for node in self.client.nodes() if not node.open]:
            if time.monotonic() > deadline:
                raise Failed(
                    f"{len(closed)} of {len(nodes)} nodes can't be given work, {closed[0]} among them"
                )
            time.sleep(TICK_S)

    def jobs(self) -> list[JobSummary]:
        """All jobs, as the API tells of them."""
        return list(self.client.jobs())


def wait_until_idle(client: Client, timeout_s: float) -> None:
    """Until no job waits or runs."""
    deadline = time.monotonic() + timeout_s
    while next(client.jobs(states=("held", "waiting", "starting", "running", "ending"), most=1), None):
        if time.monotonic() > deadline:
            raise Failed(f"jobs have not ended within {timeout_s:g} s")
        time.sleep(TICK_S)


def check_jobs(found: list[JobSummary], acknowledged: list[int], state: str) -> None:
    """Failed unless the ledger has just these jobs, each started once, and all are in that state."""
    ids = Counter(job.id for job in found)
    wanted = Counter(acknowledged)
    if ids != wanted:
        raise Failed(
            f"{len(wanted)} jobs were acknowledged, and the ledger has {len(ids)}; {wanted - ids} are lost"
        )
    other = [job for job in found if job.state != state or job.attempts != 1 or job.started_at is None]
    if other:
        raise Failed(
            f"{len(other)} jobs are not {state} at their first start, {other[0].id}: {other[0].state} {other[0].why}"
        )


def cluster_text(nodes: int, gpus: int) -> str:
    """A cluster of local nodes with emulated GPUs."""
    names = f"emu-[{1:0{len(str(nodes))}d}-{nodes}]" if nodes > 1 else "emu-1"
    return f"""apiVersion: gangline/v1
kind: Cluster
metadata: {{name: {CLUSTER}}}
sites:
  - {{name: here, kind: local}}
pools:
  - {{name: local, site: here, nodes: "{names}", gpu: {{model: {MODEL}, count: {gpus}, emulate: always}}}}
queues:
  - {{name: default}}
"""


def job_document(name: str, command: list[str], **spec: object) -> dict[str, object]:
    """A job of one task with one GPU, unless `spec` says otherwise."""
    asked = spec or {"tasks": 1, "per_task": {"gpus": 1}}
    return {
        "apiVersion": "gangline/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**asked, "command": command},
    }


def _free_port() -> int:
    """A port that nobody listens on now; a server that is started again needs the same one."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port
