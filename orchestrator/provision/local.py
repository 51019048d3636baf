"""Nodes of a `local` site: this machine plays each of them, by one agent process a node.

Comes in: a cluster's spec and its state folder. Goes out: a controller process and agent processes, started, found
again and stopped. Called by: cli `up`, `down`, `demo`. What runs as a job is the shepherds': it outlives all of this.

STATE/up/{lock,server.json,agent-NODE.json}  STATE/server.log  STATE/nodes/NODE/{agent.json,join,agent.log,state/}
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import catalog
from orchestrator.model.cluster import ClusterSpec, Emulate, GpuSpec, Pool, SiteKind
from orchestrator.model.errors import Conflict
from orchestrator.provision.daemons import Daemon, Daemons
from orchestrator.provision.files import private_folder, write_whole

SERVER = "server"
_AGENT = "agent-"


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node that this machine plays. `only`: which of the machine's real GPUs are its own; None: all."""

    name: str
    pool: Pool
    only: tuple[int, ...] | None = None


def nodes_of(spec: ClusterSpec) -> list[LocalNode]:
    """All nodes of local sites, in the spec's order. Several nodes share out the machine's real GPUs in that order."""
    pools = [pool for pool in spec.pools if spec.site_of(pool).kind is SiteKind.LOCAL]
    alone = sum(len(pool.nodes) for pool in pools) == 1
    found: list[LocalNode] = []
    taken = 0
    for pool in pools:
        real = pool.gpu is not None and pool.gpu.emulate is not Emulate.ALWAYS
        count = pool.gpu.count if pool.gpu is not None and real else 0
        for name in pool.nodes:
            found.append(LocalNode(name, pool, None if alone else tuple(range(taken, taken + count))))
            taken += count
    return found


def foreign_sites(spec: ClusterSpec) -> list[str]:
    """Names of sites that are not of this machine."""
    return [site.name for site in spec.sites if site.kind is not SiteKind.LOCAL]


def agent_config(node: LocalNode, url: str, home: Path) -> dict[str, Any]:
    """The config of a node's agent: it speaks to `url`, keeps everything below `home`, runs jobs as its own user."""
    gpu = node.pool.gpu
    gpus: dict[str, Any] = (
        {"emulate": str(gpu.emulate), "model": gpu.model, "count": gpu.count, "memory": _memory(gpu)}
        if gpu
        else {}
    )
    if gpu and node.only is not None and gpu.emulate is not Emulate.ALWAYS:
        gpus["only"] = list(node.only)
    return {
        "node": node.name,
        "url": url,
        "join_token_file": str(home / "join"),
        "state_dir": str(home / "state"),
        "gpus": gpus or {"emulate": "never", "only": []},
        "cores": node.pool.cores,
        "memory": node.pool.memory,
        "run_as_self": True,
    }


def _memory(gpu: GpuSpec) -> int:
    """Bytes that an emulated GPU has: what the file says, else what the catalog knows of the model; 0: unknown."""
    known = catalog.load().gpus.get(gpu.model)
    return gpu.memory or (known.memory if known is not None else 0)


class LocalSite:
    """What runs for one cluster on this machine. `state` is the cluster's state folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._daemons = Daemons(state / "up")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold off any other `up` or `down` of the same cluster; Conflict if one is at work."""
        folder = self.state / "up"
        private_folder(folder)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    "local.busy",
                    f"another `gangline up` or `down` is at work on {self.state}",
                    "wait until it has finished",
                ) from None
            yield
        finally:
            os.close(descriptor)

    # --- the controller -----------------------------------------------------------------------------------------

    @property
    def server_log(self) -> Path:
        """Where the controller writes what it does."""
        return self.state / "server.log"

    def server(self) -> Daemon | None:
        """The controller if it was started here and runs."""
        return self._daemons.get(SERVER)

    def start_server(self, arguments: list[str]) -> Daemon:
        """Start a controller: `gangline server run` with these arguments."""
        argv = [sys.executable, "-P", "-m", "orchestrator.cli", "server", "run", *arguments]
        return self._daemons.start(SERVER, argv, self.server_log, self.state)

    def stop_server(self, grace_s: float) -> bool:
        """Stop it; False if it had to be killed."""
        return self._daemons.stop(SERVER, grace_s)

    # --- agents -------------------------------------------------------------------------------------------------

    def home(self, node: str) -> Path:
        """The folder of one node."""
        return self.state / "nodes" / node

    def agent_log(self, node: str) -> Path:
        """Where a node's agent writes what it does."""
        return self.home(node) / "agent.log"

    def agents(self) -> dict[str, Daemon | None]:
        """Every node whose agent was started here; None for those that have died."""
        names = [name for name in self._daemons.names() if name.startswith(_AGENT)]
        return {name.removeprefix(_AGENT): self._daemons.get(name) for name in names}

    def listening(self, node: str) -> bool:
        """Whether the node's agent is at work: it alone reads the pipe `notices` in its folder (agent/layout.py)."""
        try:
            os.close(os.open(self.home(node) / "state" / "notices", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # ENXIO: nobody reads it; ENOENT: nobody ever has
            return False
        return True

    def joined(self, node: str) -> bool:
        """Whether the node has a token of its own."""
        return (self.home(node) / "state" / "token").exists()

    def write_join(self, node: str, secret: str) -> None:
        """Keep the token with which the agent asks to be let in."""
        self._write(self.home(node) / "join", secret + "\n")

    def configure(self, node: LocalNode, url: str) -> bool:
        """Write the agent's config; whether that changed anything."""
        home = self.home(node.name)
        path = home / "agent.json"
        text = json.dumps(agent_config(node, url, home), indent=2) + "\n"
        if path.exists() and path.read_text() == text:
            return False
        self._write(path, text)
        return True

    def start_agent(self, node: str) -> Daemon:
        """Start the node's agent with its config."""
        home = self.home(node)
        argv = [sys.executable, "-P", "-m", "orchestrator.agent", "--config", str(home / "agent.json")]
        return self._daemons.start(_AGENT + node, argv, self.agent_log(node), home)

    def stop_agent(self, node: str, grace_s: float) -> bool:
        """Stop it; False if it had to be killed. Its attempts run on."""
        return self._daemons.stop(_AGENT + node, grace_s)

    def _write(self, path: Path, text: str) -> None:
        private_folder(path.parent)
        write_whole(path, text.encode())
