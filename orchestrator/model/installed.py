"""An installed agent: where its parts lie on a host, and the unit that runs it.

Comes in: nothing. Goes out: paths, texts. Called by: planning.desired (hosts of metal sites), agent.install (bought
nodes put the same in place themselves).
"""

from __future__ import annotations

AGENT_ARCHIVE = "/opt/gangline/agent.pyz"
AGENT_CONFIG = "/etc/gangline/agent.json"
AGENT_STATE = "/var/lib/gangline-agent"  # DESIGN section 7
AGENT_UNIT = "gangline-agent.service"
AGENT_UNIT_FILE = f"/etc/systemd/system/{AGENT_UNIT}"
CA_FILE = "/etc/gangline/ca.pem"
PYTHON = "/usr/bin/python3"
TIME_UNIT = "chrony.service"

FOLDERS = (  # mode: configuration and code for all to read; the agent's state is passable, as the agent itself keeps it
    ("/etc/gangline", "0755"),
    ("/opt/gangline", "0755"),
    (AGENT_STATE, "0711"),
)

LOGIN_FILE = "/etc/systemd/logind.conf.d/gangline.conf"
LOGIN_UNIT = "systemd-logind.service"
LOGIN = "[Login]\nRemoveIPC=no\n"  # else the shared memory of a job goes when its user logs out of the node

LIMITS_FILE = "/etc/security/limits.d/gangline.conf"
MEMLOCK = "* - memlock unlimited\nroot - memlock unlimited\n"  # pinned memory of GPUs and RDMA needs it


def unit_text(python: str = PYTHON) -> str:
    """The agent's unit, run by that interpreter (3.10 or newer).

    The agent starts jobs as other users, and what binds a unit binds all that it starts: a private /tmp, read-only
    folders, no new privileges or a closed device list would break jobs. What is left out of reach is what no job has a
    use for. KillMode: jobs outlive the agent.
    """
    return f"""[Unit]
Description=Gangline agent
Wants=network-online.target
After=network-online.target {TIME_UNIT}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={python} -I {AGENT_ARCHIVE} --config {AGENT_CONFIG}
Restart=always
RestartSec=2
KillMode=process
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=1048576
LimitMEMLOCK=infinity
UMask=0077
StateDirectory=gangline-agent
StateDirectoryMode=0711
CapabilityBoundingSet=~CAP_SYS_BOOT CAP_SYS_TIME CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_AUDIT_CONTROL CAP_WAKE_ALARM
KeyringMode=private

[Install]
WantedBy=multi-user.target
"""
