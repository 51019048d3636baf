"""A host joins over TLS with a key pair of its own: what is on it, and what a copy of it is worth elsewhere."""

from __future__ import annotations

import hashlib
import http.client
import json
import shlex
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import Client
from orchestrator.model import join_line
from orchestrator.model.codec import encode
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import SyncRequest
from tests.testbed.bed import Bed, Host
from tests.testbed.lab import Lab, until

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
AGENT = "/var/lib/gangline-agent"
UNIT = "gangline-agent.service"


@pytest.fixture(scope="module")
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One host that was brought up as a person does it."""
    made = Lab(testbed, testbed.fresh(1, "13", furnished=True), tmp_path_factory.mktemp("lab"))
    try:
        made.up().ok()
        yield made
    finally:
        made.stop()


@pytest.fixture
def host(lab: Lab) -> Host:
    return lab.hosts[0]


def ca(lab: Lab) -> Path:
    return lab.state / "tls" / "ca.pem"


def beat(lab: Lab, token: str, identity: Path | None, facts: NodeFacts) -> tuple[int, Any]:
    """A sync in the host's name from the operator's machine."""
    context = ssl.create_default_context(cafile=str(ca(lab)))
    if identity is not None:
        context.load_cert_chain(identity)
    connection = http.client.HTTPSConnection(lab.bed.gateway, lab.port, timeout=20, context=context)
    try:
        body = json.dumps(encode(SyncRequest("h1", "elsewhere", facts.boot_id, facts=facts)))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/api/v1/agent/sync", body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_the_key_was_made_on_the_host_and_is_roots_alone(lab: Lab, host: Host) -> None:
    assert host.inside(f"stat -c '%a %U' {AGENT}/identity.pem {AGENT}/token").check() == "600 root\n600 root"
    assert host.inside(f"ls {AGENT} | grep -E 'joining|new|pub' || true").check() == ""
    private = host.inside(f"sed -n 2p {AGENT}/identity.pem").check()
    for path in lab.home.rglob("*"):
        assert not path.is_file() or private.encode() not in path.read_bytes(), f"{path} has the host's key"


def test_the_join_token_on_the_host_says_address_and_authority(lab: Lab, host: Host) -> None:
    line = join_line.parse(host.inside("cat /etc/gangline/join").check())
    assert line.url == f"https://{lab.bed.gateway}:{lab.port}"
    theirs = host.inside("cat /etc/gangline/ca.pem").check()
    assert line.ca_sha256 == hashlib.sha256(ssl.PEM_cert_to_DER_cert(theirs)).hexdigest()
    assert host.inside("stat -c %a /etc/gangline/join").check() == "600"


def test_its_token_alone_is_refused_from_elsewhere(lab: Lab, host: Host) -> None:
    token = host.inside(f"cat {AGENT}/token").check()
    status, told = beat(lab, token, None, NodeFacts("b", 4, 1 << 30))
    assert (status, told["code"]) == (401, "access.node-key")
    assert lab.open_nodes() == ["h1"], "the host itself goes on"


def test_token_and_key_on_another_machine_are_another_machine(lab: Lab, host: Host, tmp_path: Path) -> None:
    """Whoever has root on the host can take both: then the machine's id tells, and the node gets no work."""
    stolen = tmp_path / "identity.pem"
    stolen.write_text(host.inside(f"cat {AGENT}/identity.pem").check() + "\n")
    token = host.inside(f"cat {AGENT}/token").check()
    status, _ = beat(lab, token, stolen, NodeFacts("another-boot", 4, 1 << 30, machine_id="another-machine"))
    assert status == 200
    until(lambda: any(mark.kind == "changed" for mark in lab.node("h1").marks), "it is marked")
    assert lab.open_nodes() == []
    host.inside(f"systemctl restart {UNIT}").check()
    until(lambda: lab.node("h1").boot_id == host.boot_id(), "the host tells again what it is")
    with lab.client() as client:
        client.uncordon("h1")
    until(lambda: lab.open_nodes() == ["h1"], "a person agrees, and the host is itself again")


def test_a_lost_key_is_told_and_a_new_join_token_by_hand_heals_it(lab: Lab, host: Host) -> None:
    host.inside(f"rm {AGENT}/identity.pem && systemctl restart {UNIT}").check()
    words = "this connection has shown no key"
    until(lambda: words in host.inside(f"journalctl -u {UNIT} -o cat").check(), "its log says so")
    with Client(
        f"https://{lab.bed.gateway}:{lab.port}",
        (lab.state / "admin.token").read_text().strip(),
        ca_file=str(ca(lab)),
    ) as client:
        line = client.create_token("join", "h1", 600).join_line
    host.inside(f"printf '%s\\n' {shlex.quote(line)} > /etc/gangline/join").check()
    until(lambda: host.inside(f"test -e {AGENT}/identity.pem").code == 0, "it has a key again")
    assert host.inside(f"stat -c %a {AGENT}/identity.pem").check() == "600"
    until(lambda: lab.open_nodes() == ["h1"], "it may be given work")
    assert lab.plan().get("changes", []) == []
