"""What a bought node does when it starts: its user-data, a shell script as cloud-init runs it.

Comes in: the wanted cluster, a pool of an aws site, the sum of the controller's certificate authority, a fixed node's
name. Goes out: the script. Called by: lookups (for the program: launch templates, fixed nodes), tests that start hosts.

Nothing in it is secret, and as little as can be depends on the version of Gangline: it finds a Python, and fetches the
agent from the controller over a connection that the authority's SHA-256 pins. All the rest the agent's archive does
(agent/install.py). So neither a new agent nor a new unit changes launch templates, and nodes start with the agent that
their controller speaks with; no sum of the archive is pinned, since who gives it is.

The script is the same for the same words in the file: comments and blank lines of its sources are not in it, and what
is as usual is not said. It makes a unit, so that a start that was cut short goes on at the next one, and says on the
console what it waits for.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.model.cluster import ClusterSpec, Identity, Pool
from orchestrator.model.errors import InputError
from orchestrator.model.installed import AGENT_STATE

MOST_BYTES = 16_384  # of user-data (EC2 API reference, RunInstances), before base64
BOOT_UNIT, UNJOINED_UNIT = "gangline-boot.service", "gangline-unjoined"
LEAST_UNJOINED_S = 3600  # a controller may be away for a while, and is asked again all that time
PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python3.10")

SCRIPT = """\
#!/bin/sh
# Gangline: brings this machine into its cluster. Nothing in here is secret.
set -eu
mkdir -p /etc/gangline /opt/gangline
cat > /etc/gangline/boot.json <<'END-OF-GANGLINE'
@BOOT@
END-OF-GANGLINE
cat > /opt/gangline/first.py <<'END-OF-GANGLINE'
@FIRST@
END-OF-GANGLINE
cat > /opt/gangline/first.sh <<'END-OF-GANGLINE'
for python in @PYTHONS@; do
    path=$(command -v "$python") || continue
    if "$path" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        exec "$path" -I /opt/gangline/first.py
    fi
done
echo "gangline: there is no Python 3.10 or newer here: use an image that has it, or install it (python3.11)"
exit 1
END-OF-GANGLINE
cat > /etc/systemd/system/@UNIT@ <<'END-OF-GANGLINE'
[Unit]
Description=Gangline fetches its agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=/bin/sh /opt/gangline/first.sh
Restart=on-failure
RestartSec=10
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=multi-user.target
END-OF-GANGLINE
systemctl daemon-reload
systemctl enable @UNIT@
systemctl start --no-block @UNIT@
"""

# For instances whose template ends them when they shut down. The agent has its token from the moment it is let in.
UNJOINED = """\
cat > /etc/systemd/system/@UNJOINED@.service <<'END-OF-GANGLINE'
[Unit]
Description=Gangline ends an instance that nobody has let in
ConditionPathExists=!@TOKEN@

[Service]
Type=oneshot
StandardOutput=journal+console
ExecStart=/bin/sh -c 'echo "gangline: nobody has let this instance in for @SECONDS@ s: it ends"; systemctl poweroff'
END-OF-GANGLINE
cat > /etc/systemd/system/@UNJOINED@.timer <<'END-OF-GANGLINE'
[Unit]
Description=Gangline ends an instance that nobody has let in

[Timer]
OnBootSec=@SECONDS@
AccuracySec=1

[Install]
WantedBy=timers.target
END-OF-GANGLINE
systemctl daemon-reload
systemctl enable --now @UNJOINED@.timer
"""


@dataclass(frozen=True, slots=True)
class Boot:
    """What a node has to be told. `ca_sha256`: hex, empty where the system's own authorities are to be trusted; `node`:
    a fixed node's name; `agent`: what its agent's config says beyond the usual; `unjoined_s`: after so many seconds an
    instance that nobody has let in ends itself (0: never)."""

    url: str
    ca_sha256: str
    site: str
    pool: str
    node: str = ""
    agent: dict[str, Any] = field(default_factory=dict)
    unjoined_s: int = 0


def of_cluster(spec: ClusterSpec, ca_sha256: str) -> Callable[[Pool, str], str]:
    """User-data by pool and node, as a stack's program asks for it; an empty name is that of a launch template."""
    return lambda pool, node: user_data(boot_of(spec, pool, ca_sha256, node))


def boot_of(spec: ClusterSpec, pool: Pool, ca_sha256: str, node: str = "") -> Boot:
    """Of a pool's nodes, or of one fixed node. The controller ends what it has bought and what does not join in time;
    an elastic node's own end is for when there is no controller any more, and nobody would end what is billed."""
    unjoined_s = max(LEAST_UNJOINED_S, 2 * pool.size.boot_deadline_s) if pool.size is not None else 0
    agent = _agent_words(pool, spec.identity)
    return Boot(spec.controller.address, ca_sha256, pool.site, pool.name, node, agent, unjoined_s)


def _agent_words(pool: Pool, identity: Identity) -> dict[str, Any]:
    words: dict[str, Any] = {}
    if pool.cores:
        words["cores"] = pool.cores
    if pool.memory:
        words["memory"] = pool.memory
    if identity.min_uid != Identity().min_uid:
        words["min_uid"] = identity.min_uid
    return words


def user_data(boot: Boot) -> str:
    """The script. InputError where the controller has no address that another machine could call, or it is too long."""
    if not boot.url.startswith("https://"):
        raise InputError(
            "boot.address",
            f"bought nodes call the controller by https, and its address is {boot.url or 'not given'}",
            "give controller.address in the file, as the nodes reach it: https://HOST:PORT",
            "controller.address",
        )
    words: dict[str, Any] = {
        "url": boot.url, "ca_sha256": boot.ca_sha256, "site": boot.site, "pool": boot.pool, "node": boot.node,
        "agent": boot.agent,
    }  # fmt: skip
    text = SCRIPT + (UNJOINED if boot.unjoined_s else "")
    for mark, value in (
        ("@BOOT@", json.dumps(words, sort_keys=True, separators=(",", ":"))),
        ("@FIRST@", _first()),
        ("@PYTHONS@", " ".join(PYTHONS)),
        ("@UNIT@", BOOT_UNIT),
        ("@UNJOINED@", UNJOINED_UNIT),
        ("@TOKEN@", f"{AGENT_STATE}/token"),
        ("@SECONDS@", str(boot.unjoined_s)),
    ):
        text = text.replace(mark, value)
    text = canonical(text)
    if len(text.encode()) > MOST_BYTES:
        raise InputError("boot.too-long", f"user-data of pool {boot.pool} has more than {MOST_BYTES} bytes")
    return text


@cache
def _first() -> str:
    """The first step's text without its docstrings."""
    source = Path(__file__).with_name("first.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    spoken: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            text = node.body[0]
            spoken.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return "\n".join(line for number, line in lines if number not in spoken)


def canonical(text: str) -> str:
    """Without blank lines, comments of their own, and spaces at ends: what they are changes no node."""
    first, *rest = text.splitlines()
    spoken = (line for line in rest if line.strip() and not line.lstrip().startswith("#"))
    kept = [re.sub(r"\s+# noqa.*", "", line).rstrip() for line in spoken]
    return "\n".join((first.rstrip(), *kept)) + "\n"
