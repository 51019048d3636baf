"""A launcher of real hosts: testbed hosts that start as instances of a cloud do, with nothing but user-data.

Comes in: a bed, an instance's id, user-data. Goes out: a booted host that has an emulated metadata service at the
address where the cloud has it, and that has run the user-data as cloud-init would. Called by: tests of bought nodes.

The service is in a network namespace of its own inside the host, as it is outside of an instance: what keeps jobs from
it has to hold on the way out. Its answers are files (`notice`); it comes back with every boot, before what asks it.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

from orchestrator.model import instance
from tests.provision.aws.papers import document
from tests.testbed import metadata_host
from tests.testbed.bed import Bed, Host
from tests.testbed.metadata import papers_of, put

ANSWERS = "/var/lib/emulated-metadata"
PROGRAM = "/usr/local/lib/emulated-metadata.py"
USER_DATA = "/var/lib/cloud/instance/scripts/part-001"
SERVICE = "emulated-metadata.service"
UNIT = f"""[Unit]
Description=An emulated metadata service
After=systemd-networkd.service
Before=gangline-boot.service gangline-agent.service

[Service]
ExecStartPre=/bin/sh {PROGRAM}.sh
ExecStart=/usr/sbin/ip netns exec cloud /usr/bin/python3 -I {PROGRAM} {ANSWERS} {instance.METADATA_V4} 80

[Install]
WantedBy=multi-user.target
"""
WAY = f"""set -e
ip netns del cloud 2>/dev/null || true
ip link del cloud0 2>/dev/null || true
ip netns add cloud
ip link add cloud0 type veth peer name cloud1 netns cloud
ip addr add 169.254.169.1/32 dev cloud0
ip link set cloud0 up
ip route add {instance.METADATA_V4}/32 dev cloud0 src 169.254.169.1
ip -n cloud addr add {instance.METADATA_V4}/32 dev cloud1
ip -n cloud link set lo up
ip -n cloud link set cloud1 up
ip -n cloud route add 169.254.169.1/32 dev cloud1
"""
# What a job would try: a token, then the credentials of the instance's role.
THEFT = f"""
import urllib.request
try:
    ask = urllib.request.Request("{instance.METADATA_URL}{instance.TOKEN_PATH}", method="PUT",
                                 headers={{"{instance.TTL_FIELD}": "60"}})
    token = urllib.request.urlopen(ask, timeout=5).read().decode()
    ask = urllib.request.Request("{instance.METADATA_URL}/latest/meta-data/iam/security-credentials/node",
                                 headers={{"{instance.TOKEN_FIELD}": token}})
    print("stolen:", urllib.request.urlopen(ask, timeout=5).read().decode())
except OSError as error:
    print("closed:", error)
"""


def launched(bed: Bed, host: Host, name: str, user_data: str, papers: dict[str, str] | None = None) -> Host:
    """The host is that instance from now on: it has its metadata service and has run its user-data. `papers`: other
    answers than the true ones, as after a copy."""
    assert bed.hosts[host.name] is host
    give_service(host, name, papers)
    _write(host, USER_DATA, user_data)
    host.inside(f"systemd-run --quiet --wait --pipe --unit=emulated-cloud-init {USER_DATA}").check()
    return host


def give_service(host: Host, name: str, papers: dict[str, str] | None = None) -> None:
    """Its metadata service answers, now and after every boot."""
    put(host.root / ANSWERS.lstrip("/"), papers or papers_of(name, _document(host, name)))
    _write(host, PROGRAM, Path(metadata_host.__file__).read_text())
    _write(host, f"{PROGRAM}.sh", WAY)
    _write(host, f"/etc/systemd/system/{SERVICE}", UNIT)
    host.inside(f"systemctl daemon-reload && systemctl enable --now {SERVICE}").check()
    deadline = time.monotonic() + 20
    while theft(host).startswith("closed: "):
        assert time.monotonic() < deadline, "the emulated service does not answer"
        time.sleep(0.1)


def _write(host: Host, path: str, text: str) -> None:
    file = host.root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def _document(host: Host, name: str) -> str:
    return document(name, privateIp=host.address)


def notice(host: Host, in_s: int) -> str:
    """The market takes it back in so many seconds; the time, as the service says it."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + in_s))
    told = json.dumps({"action": "terminate", "time": at})
    put(host.root / ANSWERS.lstrip("/"), {instance.INTERRUPTION_PATH: told})
    return at


def theft(host: Host, user: str = "") -> str:
    """What a process of that user, or root, gets from the service."""
    command = f"python3 -c {shlex.quote(THEFT)}"
    if user:
        command = f"runuser -u {user} -- {command}"
    return host.inside(command).check()
