"""A cluster of real processes on loopback: one controller, agents, a client; whatever dies can be started again.

Comes in: a folder, the wanted nodes, settings. Goes out: `Cluster` with its processes, its submits, and the checks that
every test ends with. Called by: the system tests, through the fixtures in conftest.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.agent import layout
from orchestrator.client import Client
from orchestrator.controller.settings import Settings
from orchestrator.ledger.events import JobSubmitted
from orchestrator.model.errors import TimedOut, Unavailable
from orchestrator.model.node import Contact
from orchestrator.provision.local import LocalNode, agent_config, nodes_of
from orchestrator.spec import load_cluster_text
from orchestrator.wire import api as wire
from tests.system import processes, verify
from tests.system.members import Agent, Controller
from tests.system.processes import DEADLINE_S, until
from tests.system.workload import RANK, Gate, Trace, Work, check_traces, job_document, read_traces, single

SPEC = """
apiVersion: gangline/v1
kind: Cluster
metadata: {{name: sys}}
sites: [{{name: here, kind: local, network: {{ports: "{ports}"}}}}]
pools:
  - {{name: all, site: here, nodes: "n[1-{nodes}]", gpu: {{model: H100-SXM5-80GB, count: {gpus}, emulate: always}}}}
queues: [{{name: default}}]
"""
TRY_AGAIN_S = 0.02
FIRST_PORT, LAST_PORT, PORTS = 21_000, 29_000, 200  # above those that a cluster uses by default

T = TypeVar("T")


class Cluster:
    """Everything that one test runs."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        gpus: int = 8,
        settings: Settings | None = None,
        state: Path | None = None,
        agent: Mapping[str, Any] | None = None,
        *,
        tcp: bool = False,
    ) -> None:
        self.folder = folder
        self.state = state or folder / "s"
        self.trace = folder / "trace"
        self.settings = settings or Settings()
        self.address = f"127.0.0.1:{free_port()}" if tcp else ""
        self.controller = self.another_controller()
        self.others: list[Controller] = []
        self.spec = SPEC.format(nodes=nodes, gpus=gpus, ports=own_ports())
        self.agents: dict[str, Agent] = {}
        self.acknowledged: dict[str, int] = {}
        self.work: dict[int, Work] = {}
        self.gates: list[Gate] = []
        self._agent_config = {"stuck_s": 1.0, **(agent or {})}
        self._client: Client | None = None

    # --- starting ---------------------------------------------------------------------------------------------

    def another_controller(self) -> Controller:
        """One on the same ledger that is not started."""
        return Controller(self.state, self.folder / "server.log", self.folder, self.settings, self.address)

    def up(self) -> Cluster:
        """A controller, the spec applied, every agent in, every node open."""
        self.controller.start().ready()
        spec = load_cluster_text(self.spec, "cluster.yaml").cluster
        assert spec is not None
        self.client.apply_cluster(spec)
        for node in nodes_of(spec):
            self.agents[node.name] = self._join(node).start()
        self.wait_open()
        return self

    def _join(self, node: LocalNode) -> Agent:
        home = self.folder / "n" / node.name
        home.mkdir(parents=True)
        (home / "join").write_text(self.client.create_token("join", node.name).secret)
        config = agent_config(node, self.url, home) | self._agent_config_of(node.name)
        (home / "agent.json").write_text(json.dumps(config))
        return Agent(node, home, self.folder)

    def _agent_config_of(self, name: str) -> dict[str, Any]:
        """`state_dir` in the config is a folder for all agents."""
        config = dict(self._agent_config)
        if "state_dir" in config:
            config["state_dir"] = str(Path(config["state_dir"]) / name)
        return config

    def wait_open(self) -> None:
        """Until every node answers and may be given work."""
        wanted = len(self.agents)
        until(lambda: sum(node.open for node in self.client.nodes()) >= wanted, "all nodes are open")

    @property
    def url(self) -> str:
        """Where the controller answers, whichever process it is."""
        return f"http://{self.address}" if self.address else f"unix://{self.state}/api.sock"

    def connect(self, patience_s: float) -> Client:
        """A client of the admin's."""
        token = (self.state / "admin.token").read_text().strip() if self.address else ""
        return Client(self.url, token, patience_s=patience_s)

    @property
    def client(self) -> Client:
        """A client that waits long for an absent controller."""
        if self._client is None:
            self._client = self.connect(DEADLINE_S)
        return self._client

    def reconnect(self) -> None:
        """Give up a connection that nobody answers on."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def restart(self, *, cold: bool = False) -> float:
        """A new controller after the last one has died; seconds until it answers."""
        return self.controller.start(cold=cold).ready()

    def gangline(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command, as a person on this machine gives it."""
        env = {"PATH": "/usr/bin:/bin", "GANGLINE_HOME": str(self.folder / "h"), "COLUMNS": "300"}
        command = [sys.executable, "-P", "-m", "orchestrator.cli", *words]
        return subprocess.run(
            command, capture_output=True, text=True, env=env, check=False, timeout=DEADLINE_S
        )

    # --- jobs -------------------------------------------------------------------------------------------------

    def gate(self) -> Gate:
        """A new gate for ranks to wait at."""
        self.gates.append(Gate(self.folder / f"gate-{len(self.gates)}"))
        return self.gates[-1]

    def document(
        self, name: str, work: Work, shape: Mapping[str, Any] | None = None, **spec: Any
    ) -> dict[str, Any]:
        """The job document of a piece of work."""
        command = ["/bin/sh", "-c", RANK]
        env = work.env(self.trace)
        return job_document(name, **(shape or single()), command=command, env=env, **spec)

    def submit(
        self, name: str, work: Work | None = None, shape: Mapping[str, Any] | None = None, **spec: Any
    ) -> int:
        """The id of a job that was acknowledged; its name is its key."""
        work = work or Work()
        return self.submit_document(self.document(name, work, shape, **spec), work)

    def submit_document(self, document: dict[str, Any], work: Work | None = None) -> int:
        """Submit until it is acknowledged, under one key."""
        key = document["metadata"]["name"]
        job = retried(lambda: self.client.submit(document, key).id, f"the acknowledgement of {key}")
        self.acknowledged[key] = job
        self.work[job] = work or Work()
        return job

    def job(self, job: int) -> wire.Job:
        """The job now."""
        return self.client.job(job)

    def running(self, job: int) -> wire.Job:
        """The job once all ranks of its attempt have pids."""

        def started() -> wire.Job | None:
            seen = self.client.job(job)
            assert not seen.ended, f"job {job} ended {seen.state}: {seen.why}"
            return seen if seen.attempt is not None and len(pids_of(seen)) == seen.ranks else None

        return until(started, f"job {job} runs")  # type: ignore[return-value]

    def ended(self, job: int, deadline_s: float = DEADLINE_S) -> wire.Job:
        """The job once it is over."""
        try:
            return self.client.wait(job, deadline_s)
        except TimedOut:
            raise AssertionError(f"job {job} has not ended: {self.client.job(job)}") from None

    def succeeded(self, *jobs: int) -> list[wire.Job]:
        """The jobs once they are over, all well."""
        found = [self.ended(job) for job in jobs]
        bad = {each.id: (each.state, each.exit_code, each.why) for each in found if each.state != "succeeded"}
        assert not bad, f"jobs that did not succeed: {bad}"
        return found

    def traces(self) -> list[Trace]:
        """What ranks have left."""
        return read_traces(self.trace)

    def started(self, job: int, ranks: int = 1) -> None:
        """Wait until so many ranks of the job have left their first trace."""
        until(
            lambda: sum(trace.job == job and trace.what == "start" for trace in self.traces()) >= ranks,
            f"{ranks} ranks of job {job} have started",
        )

    # --- the end ----------------------------------------------------------------------------------------------

    @property
    def places(self) -> list[str]:
        """Of all agents."""
        return [agent.place for agent in self.agents.values()]

    def check_logs(self, job: wire.Job) -> int:
        """The output of the last attempt's ranks is complete and in order, from `logs` and in the node's file; how many
        lines that were."""
        last, lines = job.past[-1], 0
        for placement in last.placements:
            for rank in range(placement.first_rank, placement.first_rank + placement.tasks):
                wanted = self.work[job.id].output(job.id, last.number, rank)
                chunk = self.client.logs(job.id, rank, limit=1 << 20)
                assert (chunk.data.decode(), chunk.ended) == (wanted, True), (
                    f"output of {last.id} rank {rank}"
                )
                folder = self.agents[placement.node].attempt(job.id, last.number)
                assert Path(layout.log_path(str(folder), rank)).read_text() == wanted
                lines += wanted.count("\n")
        return lines

    def finish(self) -> verify.Ledger:
        """All jobs are over: stop everything as people do, and prove that nothing is lost, doubled, held or left."""
        until(lambda: not processes.ranks_left(self.places), "no process of a unit is left")
        for agent in self.agents.values():
            assert agent.process.stop() == 0, agent.log_text()[-500:]
        assert self.controller.process.stop() == 0, self.controller.last_words()
        left = self._wait_left()
        assert not left, f"left behind: {left}"
        ledger = verify.read_ledger(self.state)
        verify.check_histories(ledger.histories.values())
        verify.check_submits(ledger, self.acknowledged)
        verify.check_nothing_held(ledger.state)
        verify.check_snapshot(self.state, ledger)
        traces = self.traces()
        check_traces(traces)
        _check_all_ranks_ran(ledger, traces, self.work)
        return ledger

    def _wait_left(self) -> str:
        try:
            until(lambda: not processes.carriers(self.folder, self.places), "nothing is left", 20)
        except AssertionError:
            return processes.describe(processes.carriers(self.folder, self.places))
        return ""

    def close(self) -> None:
        """End whatever still runs, by process id."""
        for controller in (self.controller, *self.others):
            if controller.child is not None:
                controller.child.kill()
        for agent in self.agents.values():
            if agent.child is not None:
                agent.child.kill()
        processes.end_all(self.folder, self.places)
        for gate in self.gates:
            gate.close()
        self.reconnect()


@functools.cache
def own_ports() -> str:
    """A range of ports for rendezvous that no other test process of this machine uses, as long as this one lives.

    Clusters know nothing of each other, and would all hand out the first port of one range.
    """
    for first in range(FIRST_PORT, LAST_PORT, PORTS):
        path = Path(tempfile.gettempdir()) / f"gangline-test-ports-{first}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return f"{first}-{first + PORTS - 1}"
    raise AssertionError("every range of ports is taken")


def free_port() -> int:
    """A TCP port of loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _check_all_ranks_ran(ledger: verify.Ledger, traces: list[Trace], work: Mapping[int, Work]) -> None:
    """Of every job that succeeded, each rank of the last attempt went from its start to its end."""
    done = {(trace.job, trace.attempt, trace.rank) for trace in traces if trace.what == "end"}
    ended_ranks: dict[int, int] = {}
    for job, attempt, _ in done:
        if attempt == ledger.histories[job].attempts[-1].number:
            ended_ranks[job] = ended_ranks.get(job, 0) + 1
    for event in ledger.events:
        if isinstance(event.body, JobSubmitted) and event.body.job in work:
            history = ledger.histories[event.body.job]
            if history.state == "succeeded":
                assert ended_ranks.get(history.job, 0) == event.body.spec.request.total_tasks(), history


def pids_of(job: wire.Job) -> list[int]:
    """The pids of the live attempt, in the order of ranks."""
    return [pid for part in job.attempt.parts for pid in part.pids] if job.attempt is not None else []


def retried(ask: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Ask again while the controller is away or its disk is full."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            return ask()
        except (Unavailable, TimedOut) as error:
            if time.monotonic() > end:
                raise AssertionError(f"not within {deadline_s:g} s: {what}: {error}") from error
        time.sleep(TRY_AGAIN_S)


def tell(text: str) -> None:
    """A figure for people: pytest shows it with -s or -rP, or when the test fails."""
    sys.stdout.write(text + "\n")


def contacts(cluster: Cluster) -> dict[str, str]:
    """What the controller says of each node's contact."""
    return {node.name: str(Contact(node.contact)) for node in cluster.client.nodes()}
