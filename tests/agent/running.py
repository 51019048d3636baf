"""Agents as real processes for tests: started with a config of their own, ended with all that they left.

Comes in: a folder, a controller's URL. Goes out: `RunningAgent`. Called by: the agent's system tests and its bench.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

from orchestrator.agent import containment, layout, procfs, systemd
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, LaunchKind, Owner, Request
from orchestrator.model.protocol import GangPart, Launch
from tests.agent.fake_controller import JOIN_TOKEN

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0
# All that this machine can have: the same tests hold each to one contract. Where systemd is not process 1, a test of
# the tier `testbed` runs them on a host where it is.
SUPERVISORS = ["process-tree", pytest.param("cgroup2", marks=pytest.mark.needs("root"))]
SUPERVISORS += ["systemd"] if systemd.is_manager() and os.geteuid() == 0 else []
PYCACHE = os.path.join(
    tempfile.gettempdir(), f"gangline-tests-pycache-{os.getuid()}"
)  # an installed agent has its own


def me() -> Owner:
    """The user that the tests run as."""
    return Owner(getpass.getuser(), os.getuid(), os.getgid())


def launch_of(
    *command: str, tasks: int = 1, kind: LaunchKind = LaunchKind.RANKS, node: str = "n1", **more: Any
) -> Launch:
    """A launch of one node. `more`: fields of the job, or `slots`, `owner`, `parts`, `index`."""
    outer = {name: more.pop(name) for name in ("slots", "parts", "index", "owner") if name in more}
    job = JobSpec("test", Request(tasks=tasks), command, launch=kind, **more)
    parts = outer.pop("parts", (GangPart(node, "127.0.0.1", 0, tasks),))
    owner = outer.pop("owner", me())
    index = outer.pop("index", 0)
    return Launch(job, owner, parts, index, master_address="127.0.0.1", master_port=29500, **outer)


def shell(line: str, **more: Any) -> Launch:
    """A launch of a shell line."""
    return launch_of("/bin/sh", "-c", line, **more)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    found = procfs.stat(pid)
    return found is not None and found.alive


def until(ready: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Poll what has no event: the state of processes and files."""
    end = time.monotonic() + deadline_s
    while not (found := ready()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(0.005)
    return found


class Called(Protocol):
    """A controller as an agent knows it."""

    @property
    def url(self) -> str: ...


class RunningAgent:
    """One agent process on a state folder; it can be killed and started again."""

    def __init__(self, folder: Path, controller: Called, node: str = "n1", **config: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.state_dir = str(config.pop("state_dir", folder / "state"))
        join = folder / "join"
        join.write_text(JOIN_TOKEN)
        self.node = node
        self.config_path = folder / "agent.json"
        self.config = {
            "node": node,
            "url": controller.url,
            "state_dir": self.state_dir,
            "join_token_file": str(join),
            "gpus": {"emulate": "always", "count": 8, "memory": 1 << 30},
            "run_as_self": True,
            **config,
        }
        self.config_path.write_text(json.dumps(self.config))
        self.log = folder / "agent.log"
        self.python_path: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, failpoint: str = "", python: str = sys.executable) -> RunningAgent:
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ":".join([*self.python_path, str(ROOT)]),
            "PYTHONPYCACHEPREFIX": PYCACHE,
        }
        if failpoint:
            env["GANGLINE_FAILPOINT"] = failpoint
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [python, "-m", "orchestrator.agent", "--config", str(self.config_path)],
                env=env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, as a power cut for the agent alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def wait_died(self) -> int:
        """Until it ended by itself, as a failpoint makes it."""
        assert self.process is not None
        return self.process.wait(DEADLINE_S)

    def stop(self) -> int:
        """SIGTERM and its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def directory(self, attempt: AttemptId) -> Path:
        return Path(layout.attempt_dir(self.state_dir, attempt))

    def records(self, attempt: AttemptId) -> list[dict[str, Any]]:
        """What its workers wrote."""
        path = self.directory(attempt) / layout.STATUS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def log_text(self) -> str:
        return self.log.read_text()

    def close(self) -> None:
        """End the agent and every process of its units, by process id."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        place = layout.place_of(self.node, self.state_dir)
        for each in procfs.all_stats():
            mine = any(
                line.endswith(f"@{place}".encode())
                for line in procfs.environment(each.pid)
                if line.startswith(b"GANGLINE_UNIT=")
            )
            if mine:
                kill(each.pid)
        for record in self.workers():
            if procfs.start_of(record["pid"]) == record["start"]:
                kill(record["pid"])
        self._remove_groups(place)

    def _remove_groups(self, place: str) -> None:
        home = containment.own_group()
        if home and self.config.get("supervisor") != "process-tree":
            base = os.path.join(home, containment.ROOT_GROUP, place)
            if os.path.isdir(base):
                until(lambda: not containment.units_on_node(base, place), "the control groups are empty")
                containment.drop_base(base)

    def workers(self) -> list[dict[str, Any]]:
        """Who every process says it is that ever claimed an attempt; whoever cleans up may be at it meanwhile."""
        lines: list[str] = []
        for path in Path(self.state_dir).glob(f"attempts/*/{layout.STATUS}"):
            with suppress(FileNotFoundError):
                lines += path.read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["k"] == "worker"]


def kill(pid: int) -> None:
    """SIGKILL, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
