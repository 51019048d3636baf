"""The long-running processes of a test's cluster: controllers and agents, which can be killed and started again.

Comes in: folders, settings, a failpoint for one life. Goes out: `Controller`, `Agent`. Called by: harness, keeper.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.agent import layout
from orchestrator.controller.settings import Settings
from orchestrator.model.ids import AttemptId
from orchestrator.provision.local import LocalNode
from tests.system import processes, served
from tests.system.processes import Child, until


@dataclass(slots=True)
class Controller:
    """One controller's process on a state folder."""

    state: Path
    log: Path
    mark: Path
    settings: Settings = field(default_factory=Settings)
    address: str = ""  # host:port beside the Unix socket, if any
    env: dict[str, str] = field(default_factory=dict)  # what it needs besides, as for a cloud
    child: Child | None = None

    def start(self, failpoint: str = "", *, cold: bool = False) -> Controller:
        """Start it; as the command that users run where its environment or its last words matter."""
        if failpoint or cold or self.env:
            argv = [sys.executable, "-P", "-m", "orchestrator.cli", "server", "run", "--cluster", "sys"]
            argv += ["--state", str(self.state), "--listen", self.address or "none"]
            argv += ["--lease", f"{self.settings.lease_s}s"]
            more = {"GANGLINE_FAILPOINT": failpoint} if failpoint else {}
            self.child = processes.cold(argv, self.log, self.mark, self.env | more)
        else:
            self.child = processes.warm(served.run, self.state, self.log, self.address, self.settings)
        return self

    @property
    def process(self) -> Child:
        """Its process, dead or alive."""
        assert self.child is not None
        return self.child

    def answers(self) -> bool:
        """Whether this very process says where it answers. AssertionError if it has ended."""
        try:
            told = bool(json.loads((self.state / "endpoint.json").read_text())["pid"] == self.process.pid)
        except (OSError, ValueError):
            told = False
        if not told:
            assert self.process.code() is None, (
                f"the controller ended with {self.process.code()}: {self.last_words()}"
            )
        return told

    def ready(self) -> float:
        """Wait until it answers; seconds since its start."""
        until(self.answers, "the controller answers", tick_s=0.002)
        return time.monotonic() - self.process.began

    def last_words(self, count: int = 3) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text().splitlines()[-count:]) if self.log.exists() else ""


@dataclass(slots=True)
class Agent:
    """One node's agent."""

    node: LocalNode
    home: Path
    mark: Path
    child: Child | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def state(self) -> Path:
        """Its state folder."""
        return Path(json.loads((self.home / "agent.json").read_text())["state_dir"])

    @property
    def place(self) -> str:
        """What tells its units from those of other agents."""
        return layout.place_of(self.name, str(self.state))

    @property
    def process(self) -> Child:
        """Its process, dead or alive."""
        assert self.child is not None
        return self.child

    def start(self, failpoint: str = "") -> Agent:
        """Start it with its config."""
        argv = [sys.executable, "-P", "-m", "orchestrator.agent", "--config", str(self.home / "agent.json")]
        more = {"GANGLINE_FAILPOINT": failpoint} if failpoint else {}
        self.child = processes.cold(argv, self.home / "agent.log", self.mark, more)
        return self

    def log_text(self) -> str:
        """All that it has said."""
        return (self.home / "agent.log").read_text()

    def attempt(self, job: int, number: int = 1) -> Path:
        """The folder of one attempt."""
        return Path(layout.attempt_dir(str(self.state), AttemptId(job, number)))

    def records(self, job: int, number: int = 1) -> list[dict[str, Any]]:
        """What the attempt's workers have written."""
        path = self.attempt(job, number) / layout.STATUS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def shepherd(self, job: int, number: int = 1) -> int:
        """The process that watches the attempt's ranks here."""
        return int(next(record["pid"] for record in self.records(job, number) if record["k"] == "worker"))
