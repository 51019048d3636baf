"""Looks at an account that answers over HTTP, and new prices from it: the very requests, in the time that they take.

Comes in: the tests' own server in the place of AWS. Goes out: proof that an account in which all is well passes, that
what is broken in it is found, and that prices move with it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("tests.aws.moto_server")

from orchestrator import catalog
from orchestrator.catalog.refresh import clients, refresh
from orchestrator.model.cluster import (
    ClusterSpec,
    Market,
    Offering,
    Pool,
    PoolFabric,
    PoolSize,
    Site,
    SiteKind,
    Subnet,
    Vpc,
)
from orchestrator.model.findings import Finding, Severity
from orchestrator.model.prices import microseconds
from orchestrator.model.stack_facts import StackFacts, SubnetFact, TemplateFact
from orchestrator.provision.aws import live

pytestmark = pytest.mark.system
ZONES = ("us-east-1a", "us-east-1b")
NOW = microseconds("2026-11-30T12:00:00Z")


class Ground:
    """What a site finds in the account: a network with a way out, an image, a template, a reservation."""

    def __init__(self, aws: Any) -> None:
        ec2 = self.ec2 = aws.client("ec2")
        self.vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        rows = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": list(ZONES)}])["Subnets"]
        self.subnets = {row["AvailabilityZone"]: row["SubnetId"] for row in rows}
        self._way_out()
        disk = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100}}
        self.image = ec2.register_image(
            Name="image", Architecture="x86_64", RootDeviceName="/dev/xvda", BlockDeviceMappings=[disk]
        )["ImageId"]
        self.template = ec2.create_launch_template(
            LaunchTemplateName="burst",
            LaunchTemplateData={"ImageId": self.image, "InstanceType": "p5.48xlarge"},
        )["LaunchTemplate"]["LaunchTemplateId"]
        self.account = aws.client("sts").get_caller_identity()["Account"]

    def _way_out(self) -> None:
        gateway = self.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        self.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=self.vpc)
        table = self.ec2.create_route_table(VpcId=self.vpc)["RouteTable"]["RouteTableId"]
        self.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
        for subnet in self.subnets.values():
            self.ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)

    def spec(self, *offerings: Offering, low: int = 2, high: int = 4) -> ClusterSpec:
        """One elastic pool in that network."""
        subnets = tuple(Subnet(zone, name) for zone, name in self.subnets.items())
        site = Site(
            "use1",
            SiteKind.AWS,
            region="us-east-1",
            zones=ZONES,
            vpc=Vpc(id=self.vpc, subnets=subnets),
            image=self.image,
        )
        pool = Pool("burst", "use1", fabric=PoolFabric(), size=PoolSize(low, high), offerings=offerings)
        return ClusterSpec("c", sites=(site,), pools=(pool,))

    def facts(self) -> StackFacts:
        """What an earlier apply left."""
        template = TemplateFact("burst", "p5.48xlarge", self.template, 1, self.image)
        subnets = tuple(SubnetFact(zone, name) for zone, name in self.subnets.items())
        return StackFacts(
            "c", "uid", "use1", "us-east-1", self.account, "digest", subnets=subnets, templates=(template,)
        )


@pytest.fixture
def ground(aws: Any) -> Ground:
    return Ground(aws)


def looked(ground: Ground, spec: ClusterSpec) -> list[Finding]:
    return list(live.check(spec, "use1", ground.facts(), catalog.load(), live.clients(), NOW))


P5 = Offering(("p5.48xlarge",), Market.ON_DEMAND)


def test_an_account_in_which_all_is_well_passes_and_nothing_is_made_in_it(aws: Any, ground: Ground) -> None:
    made = len(aws.calls())
    began = time.monotonic()

    assert looked(ground, ground.spec(P5)) == []

    asked = {call["operation"] for call in aws.calls()[made:]}
    print(f"{len(aws.calls()) - made} requests in {time.monotonic() - began:.1f} s")  # noqa: T201
    assert {name for name in asked if not name.startswith(("Describe", "Get"))} == {"CreateFleet"}
    assert ground.ec2.describe_instances()["Reservations"] == []


def test_what_the_account_lacks_is_found(aws: Any, ground: Ground) -> None:
    aws.quota(L_417A185B=383)
    offering = replace(P5, types=("p5.48xlarge", "p6-b300.48xlarge"))

    found = looked(ground, ground.spec(offering))

    assert [(one.name, one.severity, one.place) for one in found] == [
        ("quota", Severity.ERROR, "pools[burst].size.min"),
        ("types", Severity.WARNING, "pools[burst].offerings[0].type"),
    ]


def test_a_reservation_that_ended_is_found_and_only_where_the_file_names_it(aws: Any, ground: Ground) -> None:
    reservation = ground.ec2.create_capacity_reservation(
        InstanceType="p5.48xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-1a",
        InstanceCount=4,
    )["CapacityReservation"]["CapacityReservationId"]
    reserved = Offering(("p5.48xlarge",), Market.CAPACITY_RESERVATION, reservation=reservation)
    assert looked(ground, ground.spec(reserved)) == []

    ground.ec2.cancel_capacity_reservation(CapacityReservationId=reservation)

    (found,) = looked(ground, ground.spec(reserved))
    assert (found.name, found.words) == ("reservations", f"{reservation} is cancelled")
    assert looked(ground, ground.spec(P5)) == []


def test_what_must_not_be_asked_is_said(aws: Any, ground: Ground) -> None:
    aws.fail("UnauthorizedOperation", operation="DescribeImages", times=None)

    (found,) = looked(ground, ground.spec(P5))

    assert (found.name, found.severity) == ("images", Severity.UNCHECKED)
    assert found.words.endswith("these credentials may not call DescribeImages")


def test_throttling_is_waited_out(aws: Any, ground: Ground) -> None:
    aws.fail("RequestLimitExceeded", operation="DescribeInstances", times=2)
    assert looked(ground, ground.spec(P5)) == []


def test_prices_move_with_the_account(aws: Any) -> None:
    aws.price("p5.48xlarge", 44.0)
    aws.spot_price(20.5, type="p5.48xlarge", zone="us-east-1a")

    done = refresh("us-east-1", catalog.load(), NOW, clients())

    moved = {(one.type, str(one.market), one.zone): one.now for one in done.moved}
    assert moved["p5.48xlarge", "on_demand", ""] == 44_000_000
    assert moved["p5.48xlarge", "spot", "us-east-1a"] == 20_500_000
    assert done.failed == ()
