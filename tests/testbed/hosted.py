"""A cluster whose controller has a host of its own on the testbed.

Comes in: a bed, hosts of which the first one is the controller's. Goes out: `HostedLab`: as `Lab`, with the way in that
`gangline up` has made for the person. Called by: test_controller_host.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.client import Client
from tests.testbed.bed import Host
from tests.testbed.lab import Lab

UNIT = "gangline-controller.service"


@dataclass
class HostedLab(Lab):
    """The first host is the controller's; the pool is of the others, or of it alone if there are none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        own = self.hosts[0]
        self.spec["controller"] = {"host": own.name, "address": f"https://{own.address}:7443"}
        self.pool["nodes"] = ",".join(host.name for host in self.hosts[1:] or self.hosts)
        self.write()

    @property
    def own(self) -> Host:
        """The controller's host."""
        return self.hosts[0]

    def env(self, **more: str) -> dict[str, str]:
        """And what pip needs to reach its index, as this machine has it."""
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        config = Path.home() / ".config" / "pip" / "pip.conf"
        if "PIP_CONFIG_FILE" not in pip and config.is_file():
            pip["PIP_CONFIG_FILE"] = str(config)
        return super().env(**pip, **more)

    def context(self) -> dict[str, str]:
        """What `up` has kept for the person."""
        plain = json.loads((self.home / "config" / "contexts.json").read_text())
        (found,) = plain["contexts"]
        return {str(key): str(value) for key, value in found.items()}

    def client(self) -> Client:
        """The person's own, from this machine."""
        found = self.context()
        return Client(found["server"], found["token"], ca_file=found["ca"], patience_s=30.0)

    def user(self) -> dict[str, str]:
        """The environment of the person who submits jobs."""
        with self.client() as client:
            secret = client.create_token("submit", "alice").secret
        found = self.context()
        return {
            "GANGLINE_TOKEN": secret,
            "GANGLINE_SERVER": found["server"],
            "GANGLINE_CA": found["ca"],
        }

    def properties(self, *names: str) -> dict[str, str]:
        """Of the controller's unit, as systemd has them."""
        argv = " ".join(f"--property={name}" for name in names)
        text = self.own.inside(f"systemctl show {UNIT} {argv}").check()
        return dict(line.partition("=")[::2] for line in text.splitlines())

    def main_pid(self) -> int:
        """The controller's process."""
        return int(self.properties("MainPID")["MainPID"])

    def epoch(self) -> int:
        """Who owns the ledger: each start of a controller takes a higher one."""
        with self.client() as client:
            return client.status().epoch
