"""A cluster on the testbed's hosts, brought up and changed by the real command in processes of its own.

Comes in: a bed, hosts, what the file should say. Goes out: `Lab`: its file, its commands, its client. Called by: the
tests of metal sites.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from orchestrator.client import Client
from orchestrator.provision.local import LocalSite
from orchestrator.wire import api as wire
from orchestrator.wire import api_cluster
from tests.system.verify import read_events
from tests.testbed.bed import Bed, Host

GANGLINE = Path(sys.executable).with_name("gangline")
DEADLINE_S = 120.0
TICK_S = 0.1
USER, UID = "alice", 20001
TOLD_EVENTS = 40  # the last ones, for who reads of a failed test

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float

    def ok(self, code: int = 0) -> Done:
        """AssertionError with everything it said unless it ended with that code."""
        assert self.code == code, f"{' '.join(self.argv)}: exit {self.code}\n{self.out}\n{self.err}"
        return self


@dataclass
class Lab:
    """One cluster. `spec` is what its file says, as plain values; `write` puts it on disk."""

    bed: Bed
    hosts: list[Host]
    folder: Path
    port: int = 0  # 0: one that is free
    spec: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port = self.port or _free_port(self.bed.gateway)
        self.home = self.folder / "home"
        self.file = self.folder / "cluster.yaml"
        self.spec = {
            "apiVersion": "gangline/v1",
            "kind": "Cluster",
            "metadata": {"name": "lab"},
            "controller": {"address": f"https://{self.bed.gateway}:{self.port}"},
            "identity": {"source": "pushed", "users": [{"name": USER, "uid": UID}]},
            "sites": [
                {
                    "name": "hall",
                    "kind": "metal",
                    "inventory": "hosts.yml",
                    "ssh": {"user": "ops", "key": f"file:{self.bed.key}"},
                }
            ],
            "pools": [
                {
                    "name": "lab",
                    "site": "hall",
                    "nodes": ",".join(host.name for host in self.hosts),
                    "gpu": {"model": "H100-SXM5-80GB", "count": 8, "emulate": "always"},
                }
            ],
        }
        self.write()

    @property
    def pool(self) -> dict[str, Any]:
        """The file's only pool."""
        pool: dict[str, Any] = self.spec["pools"][0]
        return pool

    @property
    def site(self) -> dict[str, Any]:
        """The file's only site."""
        site: dict[str, Any] = self.spec["sites"][0]
        return site

    def write(self) -> None:
        """Put the file and its inventory on disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = {host.name: {"ansible_host": host.address} for host in self.hosts}
        hosts = {"all": {"children": {"lab": {"hosts": lines}}}}
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(hosts))
        self.file.write_text(yaml.safe_dump(self.spec, sort_keys=False))

    # --- commands -------------------------------------------------------------------------------------------------

    def env(self, **more: str) -> dict[str, str]:
        """What a person's shell has."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GANGLINE_HOME": str(self.home), **more}

    def run(self, *argv: str, env: Mapping[str, str] | None = None, timeout_s: float = 300.0) -> Done:
        """`gangline ARGV`."""
        began = time.monotonic()
        done = subprocess.run(
            [str(GANGLINE), *argv],
            env=self.env(**(env or {})),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
        return Done(argv, done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def up(self, *more: str, env: Mapping[str, str] | None = None) -> Done:
        """`gangline up FILE`."""
        return self.run("up", str(self.file), "--yes", *more, env=env)

    def apply(self, *more: str, env: Mapping[str, str] | None = None) -> Done:
        """`gangline apply FILE --yes`."""
        return self.run("apply", str(self.file), "--yes", *more, env=env)

    def plan(self, *more: str) -> dict[str, Any]:
        """`gangline plan FILE -o json`."""
        found: dict[str, Any] = json.loads(self.run("plan", str(self.file), "-o", "json", *more).ok().out)
        return found

    def drift(self) -> list[tuple[str, str, str, str]]:
        """What differs: (host, kind, name, value), by `gangline drift -o json`."""
        done = self.run("drift", str(self.file), "-o", "json")
        assert done.code in (0, 3, 4), done
        return [
            (sight["host"], each["kind"], each["name"], each["value"])
            for sight in json.loads(done.out)["items"]
            for each in sight.get("drift", ())
        ]

    def ansible_ping(self) -> float:
        """Seconds that a plain ping of all hosts by Ansible takes, on the folder that `up` has rendered."""
        folder = self.state / "ansible"
        began = time.monotonic()
        done = subprocess.run(
            [GANGLINE.with_name("ansible"), "-i", "inventory.yml", "all", "-m", "ping", "-o"],
            cwd=folder,
            env=self.env(ANSIBLE_CONFIG=str(folder / "ansible.cfg"), LC_ALL="C.UTF-8"),
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout.count("SUCCESS") == len(self.hosts), done.stdout
        return time.monotonic() - began

    def start(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """`gangline ARGV` in the background, its output to be read."""
        return subprocess.Popen(
            [str(GANGLINE), *argv],
            env=self.env(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    # --- the controller -------------------------------------------------------------------------------------------

    @property
    def state(self) -> Path:
        """The controller's folder."""
        return self.home / "state" / "lab"

    def client(self) -> Client:
        """The admin's."""
        return Client(f"unix://{self.state / 'api.sock'}", patience_s=20.0)

    def user(self) -> dict[str, str]:
        """The environment of the person who submits jobs from elsewhere."""
        with self.client() as client:
            secret = client.create_token("submit", USER).secret
        return {
            "GANGLINE_TOKEN": secret,
            "GANGLINE_SERVER": f"https://{self.bed.gateway}:{self.port}",
            "GANGLINE_CA": str(self.state / "tls" / "ca.pem"),
        }

    def submit(self, document: dict[str, Any]) -> int:
        """Submit a job document as the ordinary user, over TLS. Returns its id."""
        who = self.user()
        url, token, ca = (who[name] for name in ("GANGLINE_SERVER", "GANGLINE_TOKEN", "GANGLINE_CA"))
        with Client(url, token, ca_file=ca, patience_s=20.0) as client:
            return client.submit(document).id

    def job(self, job: int) -> wire.Job:
        """A job as it is now."""
        with self.client() as client:
            return client.job(job)

    def node(self, name: str) -> api_cluster.Node:
        """A node as it is now."""
        with self.client() as client:
            return client.node(name)

    def restart_server(self, *more: str) -> None:
        """The controller anew, with further options of `server run`."""
        from orchestrator.cli.changing import read
        from orchestrator.cli.local_cmd import server_arguments

        site = LocalSite(self.state)
        site.stop_server(10.0)
        site.start_server([*server_arguments(read(str(self.file)), self.state), *more])
        with self.client() as client:
            until(client.healthy, "the controller answers")

    def open_nodes(self) -> list[str]:
        """Those that may be given work."""
        with self.client() as client:
            return [node.name for node in client.nodes() if node.open]

    def stop(self) -> None:
        """End the controller; hosts go with the bed."""
        if self.state.exists():
            LocalSite(self.state).stop_server(10.0)

    def told(self) -> str:
        """What it is like now, for who must find out why a test failed: nodes, jobs, the last events, agents' words."""
        lines: list[str] = []
        for look in (self._nodes_told, self._jobs_told, self._events_told, self._agents_told):
            try:
                lines += look()
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not hide what failed first
                lines.append(f"{look.__name__}: {error!r}")
        return "\n".join(lines)

    def _nodes_told(self) -> list[str]:
        with self.client() as client:
            return [f"{node.name}: {node.contact}, open {node.open}, {node.marks}" for node in client.nodes()]

    def _jobs_told(self) -> list[str]:
        with self.client() as client:
            return [
                f"job {job.id}: {job.state}, attempts {job.attempts}, {job.reason}" for job in client.jobs()
            ]

    def _events_told(self) -> list[str]:
        return [
            f"{each.seq} {each.t_us} {each.by} {each.body}" for each in read_events(self.state)[-TOLD_EVENTS:]
        ]

    def _agents_told(self) -> list[str]:
        journal = "journalctl -u gangline-agent -n 15 --no-pager -o short-precise"
        return [f"{host.name}:\n{host.inside(journal).out}" for host in self.hosts if host.booted()]


class Watch:
    """Counts open nodes all along, from a thread of its own."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.least = len(lab.hosts)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with self._lab.client() as client:
            while not self._over.wait(0.1):
                self.least = min(self.least, sum(node.open for node in client.nodes()))


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def until(ready: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """The first true answer; AssertionError if there is none in time."""
    end = time.monotonic() + deadline_s
    while not (found := ready()):
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(TICK_S)
    return found


def hostnames(hosts: Sequence[Host]) -> list[str]:
    """Their names."""
    return [host.name for host in hosts]
