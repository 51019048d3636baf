"""Hosts that start with user-data alone: they fetch their agent, join as the instance that they are, and run jobs."""

from __future__ import annotations

import hashlib
import shlex
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.client import Client
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.stack_facts import FixedFact, StackFacts
from orchestrator.provision.aws import boot
from orchestrator.provision.aws.known import Accounts
from orchestrator.spec.load import load_cluster_text
from tests.api.listening import Listening
from tests.provision.aws.papers import ACCOUNT, INSTANCE, REGION, document, region
from tests.testbed import cloud
from tests.testbed.bed import Bed, Host
from tests.testbed.lab import UID, USER, until
from tests.testbed.metadata import papers_of

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
AGENT = "gangline-agent"
OTHER = "i-0fedcba9876543210"
UNDO = "nft delete table inet gangline_metadata; ip -4 rule del priority 169; ip -6 rule del priority 169"
FILE = f"""
apiVersion: gangline/v1
kind: Cluster
metadata: {{name: bought}}
controller: {{address: "@URL@"}}
identity: {{source: pushed, users: [{{name: {USER}, uid: {UID}}}]}}
sites:
  - {{name: here, kind: aws, region: {REGION}}}
pools:
  - name: gpu
    site: here
    nodes: "gpu-[1-2]"
    gpu: {{model: H100-SXM5-80GB, count: 8}}
    offerings: [{{type: p5.48xlarge, market: on_demand}}]
"""


class Cloud:
    """A controller on the bed's gateway that has bought nodes."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self.bed, self.state = bed, folder / "bought"
        region().trust(self.state)
        self.expect()
        self.server = Listening(self.state, address=f"{bed.gateway}:0", own_ca=[bed.gateway]).wait_ready()
        try:
            self.spec = self._spec(self.server.url)
            with self.client() as client:
                client.apply_cluster(self.spec)
        except BaseException:
            self.server.kill()
            raise

    def _spec(self, url: str) -> ClusterSpec:
        loaded = load_cluster_text(FILE.replace("@URL@", url), "cluster.yaml")
        assert loaded.cluster is not None, loaded.errors
        return loaded.cluster

    def client(self) -> Client:
        return self.server.client()

    def expect(self, *fixed: tuple[str, str]) -> None:
        """The facts of the stack: these nodes are these instances."""
        nodes = tuple(FixedFact(node, "gpu", name, "10.64.0.9") for node, name in fixed)
        Accounts(self.state).keep(
            StackFacts("bought", "abcdefabcdef", "here", REGION, ACCOUNT, "digest", fixed=nodes)
        )

    def user_data(self, node: str = "", unjoined_s: int = 0) -> str:
        """As a stack writes it; but these hosts have no GPUs."""
        pem = (self.state / "tls" / "ca.pem").read_text()
        ca_sha256 = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
        made = replace(boot.boot_of(self.spec, self.spec.pools[0], ca_sha256, node), unjoined_s=unjoined_s)
        gpus = {"emulate": "always", "model": "H100-SXM5-80GB", "count": 8, "memory": 80 << 30}
        return boot.user_data(replace(made, agent={**made.agent, "gpus": gpus}))

    def open(self) -> list[str]:
        with self.client() as client:
            return [node.name for node in client.nodes() if node.open]

    def run(self, command: str) -> str:
        """A job of the ordinary user; its output once it has succeeded."""
        with self.client() as client:
            secret = client.create_token("submit", USER).secret
        with Client(f"unix://{self.server.socket}", secret, patience_s=20.0) as client:
            job = client.submit(
                {
                    "apiVersion": "gangline/v1",
                    "kind": "Job",
                    "metadata": {"name": "j"},
                    "spec": {"tasks": 1, "per_task": {"gpus": 1}, "command": ["/bin/sh", "-c", command]},
                }
            ).id
            until(lambda: client.job(job).ended_at is not None, "the job ends")
            text = client.logs(job).data.decode()
            assert client.job(job).state == "succeeded", text
        return text


@pytest.fixture(scope="module")
def bought(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(testbed, tmp_path_factory.mktemp("bought"))
    yield made
    made.server.kill()


@pytest.fixture(scope="module")
def hosts(testbed: Bed, bought: Cloud) -> list[Host]:
    """Two as they come from the image: with the user, and nothing of Gangline."""
    found = testbed.fresh(2, "12", "13")
    for host in found:
        host.inside(f"useradd --uid {UID} --create-home {USER}").check()
    return found


def says(host: Host, words: str, unit: str = AGENT) -> str:
    command = f"journalctl -u {unit} -o cat --no-pager"
    until(lambda: words in host.inside(command).check(), f"{unit} on {host.name} says {words!r}")
    return host.inside(command).check()


def test_a_host_starts_from_user_data_joins_when_it_is_waited_for_and_runs_a_job(
    testbed: Bed, bought: Cloud, hosts: list[Host]
) -> None:
    (host, _) = hosts
    cloud.give_service(host, INSTANCE)
    assert cloud.theft(host, USER).startswith("stolen: "), "nothing keeps it yet from what it asks for"
    cloud.launched(testbed, host, INSTANCE, bought.user_data(unjoined_s=3600))
    says(host, f"nobody waits for instance {INSTANCE}")
    assert bought.open() == []
    bought.expect(("gpu-1", INSTANCE))
    until(lambda: bought.open() == ["gpu-1"], "it may be given work")
    assert bought.run("id -un").strip() == USER
    assert says(host, "joined cluster").count("joined cluster") == 1


def test_jobs_do_not_reach_the_metadata_service_and_root_does(bought: Cloud, hosts: list[Host]) -> None:
    (host, _) = hosts
    assert cloud.theft(host).startswith("stolen: ")
    assert cloud.theft(host, USER).startswith("closed: ")
    stolen = bought.run(f"python3 - <<'END'\n{cloud.THEFT}\nEND")
    assert stolen.startswith("closed: "), stolen
    assert "can reach its metadata service" not in says(host, "attempts adopted")


def test_a_copied_document_is_refused(testbed: Bed, bought: Cloud, hosts: list[Host]) -> None:
    _, thief = hosts
    copied = papers_of(INSTANCE, document(INSTANCE, privateIp=hosts[0].address))
    cloud.launched(testbed, thief, INSTANCE, bought.user_data(), copied)
    says(thief, f"instance {INSTANCE} has joined with another key pair")
    assert bought.open() == ["gpu-1"]
    assert bought.run("echo still").strip() == "still"


def test_restart_and_reboot_come_back_by_themselves(bought: Cloud, hosts: list[Host]) -> None:
    (host, _) = hosts
    host.inside(f"systemctl restart {AGENT}").check()
    assert bought.run("echo still").strip() == "still"
    before = host.boot_id()
    host.reboot()
    assert host.boot_id() != before
    with bought.client() as client:
        until(lambda: client.node("gpu-1").boot_id == host.boot_id(), "it is back from the new boot")
    until(lambda: bought.open() == ["gpu-1"], "it may be given work")
    assert "joined cluster" not in says(host, "attempts adopted"), "it was in already"
    assert cloud.theft(host, USER).startswith("closed: "), "also after a boot"
    assert bought.run("echo again").strip() == "again"


@pytest.mark.parametrize("rule", [0, 1], ids=["nft", "ip rule"])
def test_each_rule_alone_keeps_an_ordinary_user_out(hosts: list[Host], rule: int) -> None:
    """The first that works is taken; so each is tried on a host that has no other."""
    _, host = hosts
    host.inside(f"systemctl stop {AGENT}").check()
    if rule == 0 and host.inside("command -v nft").code:
        host.inside("apt-get update -qq; apt-get install -y -qq nftables", timeout_s=300).check()
    host.inside(UNDO)
    assert cloud.theft(host, USER).startswith("stolen: ")
    program = (
        "import sys; sys.path.insert(0, '/opt/gangline/agent.pyz'); from orchestrator.agent import closing; "
        f"closing._run(closing._rules(1000)[{rule}]); sys.exit(closing._reached())"
    )
    host.inside(f"python3 -c {shlex.quote(program)}").check()
    assert cloud.theft(host, USER).startswith("closed: ")
    assert cloud.theft(host).startswith("stolen: "), "root still has its way"
    host.inside(UNDO)
    assert cloud.theft(host, USER).startswith("stolen: ")


def test_a_spot_notice_is_heard(hosts: list[Host]) -> None:
    (host, _) = hosts
    at = cloud.notice(host, 120)
    says(host, f"this node ends: interruption, at {at}")


def test_what_was_let_in_stays_and_what_never_was_ends_itself(
    testbed: Bed, bought: Cloud, hosts: list[Host]
) -> None:
    """The cloud ends an elastic instance that shuts down: what no controller knows is not billed for ever."""
    joined, _ = hosts
    assert joined.inside("systemctl is-active gangline-unjoined.timer").check() == "active"
    joined.inside("systemctl start gangline-unjoined.service").check()
    assert bought.run("echo still").strip() == "still"

    stranger = testbed.boot("h3")[0]
    cloud.launched(
        testbed, stranger, OTHER, bought.user_data(unjoined_s=1), papers_of(OTHER, document(OTHER))
    )
    until(lambda: not stranger.booted(), "it has shut itself down")
