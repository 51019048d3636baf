"""One file with two halls of hosts: metal that is there, and nodes that are bought when a gang needs them.

All of it is real but the account: hosts that boot, ssh and Ansible, Pulumi's engine, the controller, TLS, user-data.
The account is the tests' own server, and every instance that it runs is a host of the testbed (launcher).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.aws.fixture import Place
from tests.aws.moto_server import REGION
from tests.provision.aws.papers import region
from tests.testbed.bed import Bed, Host
from tests.testbed.lab import UID, USER, Lab, until
from tests.testbed.launcher import LONGEST_S, Launcher

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
ZONE = f"{REGION}a"
MODEL, GPUS = "H100-SXM5-80GB", 8
TYPE = "p5.48xlarge"
EMULATED = {
    "gpus": {"emulate": "always", "model": MODEL, "count": GPUS, "memory": 80 << 30},
    "cores": 192,
    "memory": 2048 << 30,
}  # what a p5.48xlarge has, which the hosts have not
FLOOR, MOST = 1, 3
# Every rank but the first tells the first one where it is, over the network of the gang.
MEETING = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
me = os.environ["GANGLINE_NODE"]
if rank == 0:
    with socket.create_server(where) as server:
        names = [server.accept()[0].makefile().read() for _ in range(size - 1)]
    print("met:", *sorted([me, *names]), flush=True)
else:
    for _ in range(300):
        try:
            with socket.create_connection(where, 5) as call:
                call.sendall(me.encode())
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit("the first rank was not met")
"""


@dataclass
class Hybrid(Lab):
    """A lab whose file has an aws site too; `place` is where its stacks live."""

    place: Place | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.place is not None
        account = self.place.account
        ec2 = account.client("ec2")
        # The upper half of the bed's own network is a subnet of the account's, so an instance's address is its host's.
        upper = f"{self.bed.gateway.rpartition('.')[0]}.128/25"
        vpc = ec2.create_vpc(CidrBlock=self.bed.network.subnet)["Vpc"]["VpcId"]
        made = ec2.create_subnet(VpcId=vpc, CidrBlock=upper, AvailabilityZone=ZONE)["Subnet"]
        cloud = {
            "name": "use1",
            "kind": "aws",
            "region": REGION,
            "zones": [ZONE],
            "image": account.image(),
            "vpc": {"id": vpc, "subnets": {ZONE: made["SubnetId"]}},
        }
        burst = {
            "name": "burst",
            "site": "use1",
            "size": {"min": FLOOR, "max": MOST, "idle": "2s", "boot_deadline": "10m"},
            "offerings": [{"type": TYPE, "market": "on_demand"}],
        }
        self.spec["sites"].append(cloud)
        self.spec["pools"].append(burst)
        self.write()
        region().trust(self.state, REGION)

    def env(self, **more: str) -> dict[str, str]:
        """And what Pulumi and AWS's clients need."""
        assert self.place is not None
        return super().env(**{**self.place.environment, **more})

    def gang(self, nodes: int) -> int:
        """So many whole nodes that meet."""
        resources = {"nodes": nodes, "per_node": {"gpus": GPUS}}
        return self.submit(
            {
                "apiVersion": "gangline/v1",
                "kind": "Job",
                "metadata": {"name": f"gang-{nodes}"},
                "spec": {**resources, "workdir": "/tmp", "command": ["python3", "-c", MEETING]},
            }
        )

    def met(self, job: int) -> list[str]:
        """Where the ranks were, once all have succeeded."""
        until(lambda: self.job(job).ended_at is not None, f"job {job} ends", LONGEST_S)
        with self.client() as client:
            text = client.logs(job).data.decode()
        assert self.job(job).state == "succeeded", text
        (line,) = [line for line in text.splitlines() if "met:" in line]
        return line.partition("met: ")[2].split()


def prepared(host: Host) -> None:
    """As the image is: it has the person's account."""
    host.inside(f"useradd --uid {UID} --create-home {USER}").check()


@pytest.fixture
def hybrid(
    testbed: Bed, pulumi_place: Place, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Hybrid, Launcher]]:
    folder = tmp_path_factory.mktemp("lab")  # short: the controller's socket is in it
    lab = Hybrid(testbed, testbed.fresh(2, "12", "13", furnished=True), folder, place=pulumi_place)
    with Launcher(testbed, pulumi_place.account, EMULATED, prepared) as launcher:
        try:
            yield lab, launcher
        finally:
            lab.stop()


def test_what_metal_has_no_room_for_runs_whole_in_the_cloud_which_shrinks_back_and_is_renewed(
    hybrid: tuple[Hybrid, Launcher],
) -> None:
    lab, launcher = hybrid
    account = launcher.account
    lab.up().ok()
    launcher.until(lambda: lab.open_nodes() == ["burst-1", "h1", "h2"], "the floor is there")

    assert lab.met(lab.gang(2)) == ["h1", "h2"]
    assert len(launcher.ever) == FLOOR, "what fits on metal buys nothing"

    assert lab.met(lab.gang(3)) == ["burst-1", "burst-2", "burst-3"]
    assert len(launcher.ever) == MOST
    launcher.until(lambda: len(launcher.hosts) == FLOOR, "back at its floor")
    launcher.until(lambda: len(lab.open_nodes()) == 2 + FLOOR, "the controller knows it")
    bills = account.bills()
    assert sorted(bill["ended"] is None for bill in bills) == [False, False, True]
    sys.stdout.write(f"\n{len(bills)} instances, {sum(bill['seconds'] for bill in bills):.0f} s billed\n")

    (old,) = launcher.hosts
    lab.spec["sites"][-1]["image"] = account.image("newer")
    lab.write()
    lab.apply().ok()
    launcher.until(
        lambda: old not in launcher.hosts and len(lab.open_nodes()) == 2 + FLOOR, "its image is newer"
    )
    assert len(launcher.ever) == MOST + 1

    assert lab.met(lab.gang(2)) == ["h1", "h2"]
    lab.run("destroy", str(lab.file), "--yes", "lab").ok()
    launcher.until(lambda: not launcher.hosts, "nothing runs")
    assert [bill for bill in account.bills() if bill["ended"] is None] == []
