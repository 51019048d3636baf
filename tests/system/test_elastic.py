"""A controller that buys from an account and is killed between intent, call and record: nothing leaks, nothing doubles.

The controller is a real process, and dies by SIGKILL at a failpoint; the account is the tests' own server (tests.aws).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client import Client
from orchestrator.model.failpoints import NAMES
from orchestrator.model.stack_facts import StackFacts, SubnetFact, TemplateFact
from orchestrator.planning.stack_digest import stack_digest
from orchestrator.provision.aws import facts
from orchestrator.spec import load_cluster_text
from tests.aws.moto_server import Account
from tests.system.harness import Cluster, own_ports, retried
from tests.system.keeper import Keeper
from tests.system.processes import DEADLINE_S, until
from tests.system.workload import Work

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

TYPE, NEXT, ZONE = "g5.xlarge", "g5.2xlarge", "us-east-1a"
SPEC = """
apiVersion: gangline/v1
kind: Cluster
metadata: {{name: sys}}
controller: {{address: "https://127.0.0.1:7443"}}
sites:
  - {{name: here, kind: local, network: {{ports: "{ports}"}}}}
  - {{name: use1, kind: aws, region: us-east-1, zones: [us-east-1a], image: {image}}}
pools:
  - {{name: all, site: here, nodes: n1, gpu: {{model: H100-SXM5-80GB, count: 1, emulate: always}}}}
  - name: burst
    site: use1
    size: {{max: 4, idle: 1s, boot_deadline: 25m}}
    offerings: [{{type: [{types}], market: on_demand}}]
queues: [{{name: default}}]
"""
BUYING = [name for name in NAMES if name.startswith(("capacity.intent", "capacity.call"))]
ENDING = [name for name in NAMES if name.startswith("capacity.end")]
PERSON = "nobody"  # jobs on bought nodes run from uid 1000 up; every Debian has this one
LONG_S = 120.0  # a look at what exists comes every few seconds, and an unsure launch waits for two
GANG = {"nodes": 2, "per_node": {"gpus": 1, "gpu_model": ["A10G-PCIE-24GB"]}}


class Elastic(Cluster):
    """A cluster with a pool that is bought, whose stack is there."""

    def __init__(self, folder: Path, aws: Account) -> None:
        super().__init__(folder)
        self.aws, self.image = aws, aws.image()
        self.spec = SPEC.format(ports=own_ports(), image=self.image, types=f"{TYPE}, {NEXT}")
        self.controller.env = aws.environment()

    def bring(self) -> Elastic:
        """Up, and started again once the stack has written its facts."""
        self.up()
        self._write_facts(self.client.recorded().uid)
        self.controller.process.kill()
        return self

    def _write_facts(self, uid: str) -> None:
        """What Pulumi would have made, made by hand."""
        spec = load_cluster_text(self.spec, "cluster.yaml").cluster
        assert spec is not None
        ec2 = self.aws.client("ec2")
        where = [{"Name": "availability-zone", "Values": [ZONE]}]
        subnet = ec2.describe_subnets(Filters=where)["Subnets"][0]["SubnetId"]
        templates = []
        for kind in (TYPE, NEXT):
            data = {"ImageId": self.image, "InstanceType": kind}
            made = ec2.create_launch_template(LaunchTemplateName=kind, LaunchTemplateData=data)
            name = made["LaunchTemplate"]["LaunchTemplateId"]
            templates.append(TemplateFact("burst", kind, name, 1, self.image))
        known = StackFacts(
            cluster="sys",
            uid=uid,
            site="use1",
            region="us-east-1",
            account="123456789012",
            spec=stack_digest(spec, "use1"),
            subnets=(SubnetFact(ZONE, subnet),),
            templates=tuple(templates),
        )
        name = facts.parameter_name("sys", uid, "use1")
        self.aws.client("ssm").put_parameter(Name=name, Value=facts.render(known), Type="String")

    def instances(self) -> dict[str, str]:
        """Every instance that the account ever had, with its state."""
        pages = self.aws.client("ec2").describe_instances()["Reservations"]
        return {one["InstanceId"]: one["State"]["Name"] for page in pages for one in page["Instances"]}

    def kinds(self) -> dict[str, list[str]]:
        """The same, by type."""
        found: dict[str, list[str]] = {}
        for page in self.aws.client("ec2").describe_instances()["Reservations"]:
            for one in page["Instances"]:
                found.setdefault(one["InstanceType"], []).append(one["InstanceId"])
        return found

    def running(self) -> list[str]:  # type: ignore[override]
        """Those that are billed."""
        return sorted(name for name, state in self.instances().items() if state in ("pending", "running"))

    def bought(self) -> list[str]:
        """Nodes of the pool, as the controller has them."""
        nodes = retried(self.client.nodes, "the nodes")
        return [node.name for node in nodes if node.pool == "burst"]

    def gang(self, nodes: int = 2) -> int:
        """A job that fits on nothing but so many bought nodes."""
        secret = retried(lambda: self.client.create_token("submit", PERSON).secret, "a token")
        document = self.document("gang", Work(), GANG | {"nodes": nodes}, workdir="/tmp")
        with Client(self.url, secret, patience_s=DEADLINE_S) as person:
            return retried(lambda: person.submit(document, f"gang-{nodes}").id, "the acknowledgement")


@pytest.fixture
def elastic(tmp_path: Path, aws: Account) -> Iterator[Elastic]:
    made = Elastic(tmp_path, aws)
    yield made.bring()
    made.close()


@pytest.mark.parametrize("point", BUYING)
def test_a_launch_is_neither_lost_nor_doubled(elastic: Elastic, point: str) -> None:
    elastic.controller.start(point)
    with Keeper(elastic) as keeper:
        job = elastic.gang()
        until(lambda: len(elastic.running()) == 2, "both nodes are there", LONG_S)
        until(lambda: elastic.bought() == ["burst-1", "burst-2"], "the controller knows them", LONG_S)
        assert keeper.deaths == [("controller", -signal.SIGKILL)], f"{point} was not passed"
        assert len(elastic.instances()) == 2
        retried(lambda: elastic.client.cancel(job), "the cancellation")
        until(lambda: not elastic.running(), "all are given back", LONG_S)
        until(lambda: not elastic.bought(), "the controller knows that they are gone", LONG_S)
    bills = elastic.aws.bills()
    sys.stdout.write(f"{point}: {sum(bill['seconds'] for bill in bills)} s billed\n")
    assert len(elastic.instances()) == 2


@pytest.mark.parametrize("point", ENDING)
def test_what_is_given_back_is_gone(elastic: Elastic, point: str) -> None:
    elastic.controller.start(point)
    with Keeper(elastic) as keeper:
        job = elastic.gang()
        until(lambda: elastic.bought() == ["burst-1", "burst-2"], "both nodes are there", LONG_S)
        retried(lambda: elastic.client.cancel(job), "the cancellation")
        until(lambda: not elastic.running(), "all are given back", LONG_S)
        until(lambda: not elastic.bought(), "the controller knows that they are gone", LONG_S)
        assert keeper.deaths == [("controller", -signal.SIGKILL)], f"{point} was not passed"
    assert len(elastic.instances()) == 2


@pytest.mark.parametrize("short", ["refused", "cut"])
def test_a_gang_of_four_with_room_for_three_is_bought_whole_of_the_next_type(
    elastic: Elastic, short: str
) -> None:
    """Whether EC2 refuses the fleet or starts three of it: nothing of the first type stays or is billed for longer than
    it took to end it, and who comes behind the gang gets nothing before it."""
    if short == "refused":
        elastic.aws.room(3, type=TYPE)
    else:
        elastic.aws.partial(3)
    elastic.controller.start()
    job = elastic.gang(4)
    behind = elastic.gang(1)
    until(lambda: len(elastic.bought()) == 4, "the gang has its nodes", LONG_S)
    assert sorted(elastic.running()) == sorted(elastic.kinds()[NEXT])
    assert len(elastic.kinds()[NEXT]) == 4
    came_short = elastic.kinds().get(TYPE, [])
    assert bool(came_short) == (short == "cut")
    assert elastic.client.job(behind).state == "waiting"
    ended = {bill["instance"] for bill in elastic.aws.bills() if bill["ended"] is not None}
    assert ended == set(came_short) & {bill["instance"] for bill in elastic.aws.bills()}
    for each in (behind, job):
        elastic.client.cancel(each)
    until(lambda: not elastic.running(), "all are given back", LONG_S)
    until(lambda: not elastic.bought(), "the controller knows that they are gone", LONG_S)
    billed = dict.fromkeys((TYPE, NEXT), 0.0)
    for bill in elastic.aws.bills():
        billed[next(kind for kind, ids in elastic.kinds().items() if bill["instance"] in ids)] += bill[
            "seconds"
        ]
    sys.stdout.write(
        f"{short}: {billed[TYPE]:.0f} s billed of what came short, {billed[NEXT]:.0f} s of the gang\n"
    )
    assert all(bill["ended"] is not None for bill in elastic.aws.bills())
