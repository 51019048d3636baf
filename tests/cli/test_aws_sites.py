"""An aws site through the command: plan, apply, drift, an edit, destroy; with Pulumi's engine and an emulated AWS."""

from __future__ import annotations

import signal
import socket
import sys
import time

import pytest

from tests.aws.fixture import Place
from tests.cli.lab import Lab, until

PATIENCE_S = 300.0  # for one command: the engine runs up to four times in it
pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

CLUSTER = """apiVersion: gangline/v1
kind: Cluster
metadata: {{name: lab}}
controller: {{address: "https://127.0.0.1:{port}"}}
sites:
  - {{name: here, kind: local}}
  - name: use1
    kind: aws
    region: us-east-1
    zones: [us-east-1a, us-east-1b]
    image: {image}
    tags: {{team: {team}}}
storage:
  - {{name: fast, kind: fsx, path: /fast, sites: [use1], size: 4800GiB, throughput: 250}}
pools:
  - {{name: p, site: here, nodes: n1, gpu: {{model: H100-SXM5-80GB, count: 4, emulate: always}}}}
  - name: train
    site: use1
    nodes: [{nodes}]
    acceptance: skip
    fabric: {{kind: efa}}
    offerings: [{{type: p5.48xlarge, market: on_demand}}]
queues: [{{name: default}}]
"""


class Cloud:
    """A lab with an aws site in an emulated account."""

    def __init__(self, lab: Lab, place: Place) -> None:
        self.lab, self.account = lab, place.account
        self.image = self.account.image()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def write(self, nodes: str = "t-1, t-2, t-3", team: str = "infra") -> None:
        self.lab.home.mkdir(parents=True, exist_ok=True)
        text = CLUSTER.format(port=self.port, image=self.image, nodes=nodes, team=team)
        self.lab.file.write_text(text)

    def run(self, *words: str, code: int = 0) -> str:
        """Its standard error; what it printed too, where it failed."""
        with self.lab.start(*words) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, f"{process.returncode}\n{out}\n{err}"
        return out + err

    def marked(self, operation: str, rows: str) -> int:
        """How many things of a kind the account has with a cluster's mark."""
        found = getattr(self.account.client("ec2"), operation)()[rows]
        tags = [{tag["Key"] for tag in row.get("Tags", ())} for row in found]
        return sum("gangline:uid" in keys for keys in tags)

    def instances(self) -> dict[str, str]:
        """Running instances, by the node that they are."""
        found: dict[str, str] = {}
        pages = self.account.client("ec2").describe_instances()["Reservations"]
        for instance in (one for page in pages for one in page["Instances"]):
            tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
            if instance["State"]["Name"] == "running":
                found[tags["gangline:node"]] = instance["InstanceId"]
        return found


@pytest.fixture
def cloud(lab: Lab, pulumi_place: Place) -> Cloud:
    return Cloud(lab, pulumi_place)


def test_from_a_file_to_a_site_and_back_to_nothing(cloud: Cloud) -> None:
    cloud.write()
    file = str(cloud.lab.file)
    said = cloud.run("plan", file)
    assert "site use1, by Pulumi:" in said
    assert "+ Instance t-[1-3]" in said
    assert cloud.instances() == {}

    cloud.run("up", file, "--yes")
    before = cloud.instances()
    assert sorted(before) == ["t-1", "t-2", "t-3"]
    cloud.run("plan", file, "--detailed-exitcode")
    cloud.run("drift", file)

    cloud.write(nodes="t-3, t-1")
    cloud.run("apply", file, "--yes")
    after = cloud.instances()
    assert after == {name: before[name] for name in ("t-1", "t-3")}

    cloud.account.client("ec2").delete_tags(Resources=[after["t-1"]], Tags=[{"Key": "team"}])
    said = cloud.run("drift", file, code=3)
    assert "t-1" in said
    cloud.run("apply", file, "--yes")
    cloud.run("drift", file)

    said = cloud.run("destroy", file, "--yes", "lab")
    assert cloud.instances() == {}
    assert "fast is kept" in said
    cloud.run("down")


def test_storage_is_not_lost_unseen(cloud: Cloud) -> None:
    cloud.write()
    file = str(cloud.lab.file)
    cloud.run("up", file, "--yes")
    text = cloud.lab.file.read_text()
    cloud.lab.file.write_text(
        "".join(line for line in text.splitlines(keepends=True) if "fsx" not in line).replace(
            "storage:\n", ""
        )
    )
    refused = cloud.run("apply", file, "--yes", code=5)
    assert "--consent storage/fast" in refused
    assert len(cloud.account.client("fsx").describe_file_systems()["FileSystems"]) == 1
    cloud.run("apply", file, "--yes", "--consent", "storage/fast")
    assert cloud.account.client("fsx").describe_file_systems()["FileSystems"] == []
    cloud.run("down")


@pytest.mark.parametrize("operation", ["CreateVpc", "CreateLaunchTemplate", "RunInstances"])
def test_an_apply_that_is_killed_inside_a_stack_step_is_run_again_and_doubles_nothing(
    cloud: Cloud, operation: str
) -> None:
    """The command dies by SIGKILL once the account has heard a call; the engine under it ends as it may."""
    cloud.write()
    file = str(cloud.lab.file)
    with cloud.lab.start("up", file, "--yes") as killed:
        until(lambda: cloud.account.calls(operation))
        killed.kill()
        killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert "steps done" in cloud.run("status"), "people must see that something is pending"

    cloud.run("up", file, "--yes")

    assert sorted(cloud.instances()) == ["t-1", "t-2", "t-3"]
    assert len(cloud.account.bills()) == 3, "an instance was started twice"
    assert cloud.marked("describe_vpcs", "Vpcs") == 1
    assert cloud.marked("describe_launch_templates", "LaunchTemplates") == 1
    cloud.run("plan", file, "--detailed-exitcode")
    cloud.run("drift", file)
    cloud.run("destroy", file, "--yes", "lab", "--consent", "storage/fast")
    assert cloud.marked("describe_vpcs", "Vpcs") == 0
    cloud.run("down")


def test_a_plan_of_a_hundred_nodes(cloud: Cloud) -> None:
    """The whole command: the file, the engine's preview, drift and looks at the account. Bound: 10 s on two processors
    that are not busy with others. The figure is printed; the test allows for that."""
    cloud.write()
    cloud.run("up", str(cloud.lab.file), "--yes")
    cloud.account.quota(L_417A185B=100_000)
    cloud.write(nodes='"t-[1-100]"')
    began = time.monotonic()
    said = cloud.run("plan", str(cloud.lab.file))
    took = time.monotonic() - began
    sys.stdout.write(f"gangline plan of 100 nodes: {took:.1f} s\n")
    assert "+ Instance t-[4-100]" in said
    assert took < 60
    cloud.run("down")
