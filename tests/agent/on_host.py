"""An agent as a service of a real host: installed from this checkout, asked for and looked at past the network.

Comes in: a booted host of the testbed, a fake controller that listens on the bed's gateway. Goes out: `HostAgent`.
Called by: the agent's tests with real hosts.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from orchestrator.model.ids import AttemptId
from tests.agent.fake_controller import JOIN_TOKEN, FakeController
from tests.agent.running import until
from tests.testbed.bed import Host

ROOT = Path(__file__).resolve().parents[2]
SERVICE = "gangline-agent.service"
STATE = "/var/lib/gangline-agent"
PLACE = "/opt/gangline"
UNIT = f"""[Service]
Type=exec
Environment=PYTHONPATH={PLACE}
ExecStart=/usr/bin/python3 -m orchestrator.agent --config /etc/gangline/agent.json
KillMode=process
Restart=always
RestartSec=100ms
"""


class HostAgent:
    """The node's name is the host's. `config`: more fields of the agent's config."""

    def __init__(self, host: Host, controller: FakeController, **config: Any) -> None:
        self.host = host
        self.config = {
            "node": host.name,
            "url": controller.url,
            "state_dir": STATE,
            "join_token_file": "/etc/gangline/join",
            "gpus": {"emulate": "always", "count": 8, "memory": 1 << 30},
            "stuck_s": 2.0,
            **config,
        }

    def install(self) -> HostAgent:
        """Put code, config and service there, and start it."""
        self.do(f"mkdir -p {PLACE} /etc/gangline; base64 -d | tar -xzC {PLACE}", feed=_archive())
        self.write("/etc/gangline/agent.json", json.dumps(self.config))
        self.write("/etc/gangline/join", JOIN_TOKEN)
        self.write(f"/etc/systemd/system/{SERVICE}", UNIT)
        self.do(f"python3 -m compileall -q {PLACE}; systemctl daemon-reload; systemctl start {SERVICE}")
        return self

    def do(self, command: str, feed: str = "") -> str:
        """A shell command as root there that ends well; its output."""
        return self.host.inside(command, feed).check()

    def write(self, path: str, text: str) -> None:
        self.do(f"cat > {path}", feed=text)

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit as systemd tells them."""
        lines = self.do(f"systemctl show {unit} {' '.join(f'-p {each}' for each in properties)}")
        return dict(line.split("=", 1) for line in lines.splitlines())

    def records(self, attempt: AttemptId) -> list[dict[str, Any]]:
        """What its workers wrote."""
        done = self.host.inside(f"cat {STATE}/attempts/{attempt.unit}/status.jsonl")
        return [json.loads(line) for line in done.out.splitlines()]

    def shepherd(self, attempt: AttemptId) -> int:
        """Its worker's process id there."""
        return int(next(record["pid"] for record in self.records(attempt) if record["k"] == "worker"))

    def named(self, name: str) -> list[int]:
        """Processes there of that name."""
        words = self.do("ps -eo pid=,comm=").split()
        return [int(pid) for pid, comm in zip(words[::2], words[1::2], strict=True) if comm == name]

    def units(self) -> list[str]:
        """Units of attempts that systemd knows, failed ones too."""
        lines = self.do("systemctl list-units --all --plain --no-legend 'gangline-*.scope'").splitlines()
        return [line.split()[0] for line in lines if "shepherds" not in line]

    def wait_units(self, *names: str) -> None:
        until(lambda: self.units() == list(names), f"the units are {names}")

    def log(self) -> str:
        """The agent's own words."""
        return self.do(f"journalctl -o cat -u {SERVICE}")


def _archive() -> str:
    """What an agent needs of this checkout, as base64 of a tar."""
    import base64

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name in ("__init__.py", "agent", "model", "telemetry"):
            tar.add(ROOT / "orchestrator" / name, f"orchestrator/{name}", filter=_no_caches)
    return base64.b64encode(made.getvalue()).decode()


def _no_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith("__pycache__") else entry
