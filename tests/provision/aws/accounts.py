"""An aws site, and an account that is all well but for what a test changes, for the live checks.

Comes in: fields of the site, answers of AWS. Goes out: what is found. Called by: the tests of live checks beside this
file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("boto3")

from orchestrator import catalog
from orchestrator.model.cluster import (
    ClusterSpec,
    Market,
    Offering,
    Pool,
    PoolSize,
    Site,
    SiteKind,
    Subnet,
    Vpc,
)
from orchestrator.model.findings import Finding
from orchestrator.model.prices import microseconds
from orchestrator.model.stack_facts import StackFacts, SubnetFact, TemplateFact
from orchestrator.provision.aws import live
from tests.provision.aws.answers import Answers

NOW = microseconds("2026-11-30T12:00:00Z")
ZONES = ("us-east-1a", "us-east-1b")
P5 = Offering(("p5.48xlarge",), Market.ON_DEMAND)
SPOT = Offering(("p5.48xlarge",), Market.SPOT)
RESERVED = Offering(("p5.48xlarge",), Market.CAPACITY_RESERVATION, reservation="cr-1")
BLOCK = Offering(("p5.48xlarge",), Market.CAPACITY_BLOCK, reservation="cr-1")
KEPT = Vpc(id="vpc-1", subnets=(Subnet("us-east-1a", "subnet-a"), Subnet("us-east-1b", "subnet-b")))
UID = "abcdef123456"


def cluster(*offerings: Offering, low: int = 2, high: int = 4, **site: Any) -> ClusterSpec:
    """One elastic pool on one site."""
    fields: dict[str, Any] = {"zones": ZONES, "vpc": KEPT, "image": "ami-1"} | site
    return ClusterSpec(
        "c",
        sites=(Site("use1", SiteKind.AWS, region="us-east-1", **fields),),
        pools=(Pool("burst", "use1", size=PoolSize(low, high), offerings=offerings or (P5,)),),
    )


FACTS = StackFacts(
    "c", UID, "use1", "us-east-1", "123456789012", "digest",
    subnets=(SubnetFact("us-east-1a", "subnet-a"), SubnetFact("us-east-1b", "subnet-b")),
    templates=(TemplateFact("burst", "p5.48xlarge", "lt-1", 3, "ami-1"),),
)  # fmt: skip


def subnet(name: str, zone: str, free: int = 200, vpc: str = "vpc-1") -> dict[str, Any]:
    return {"SubnetId": name, "AvailabilityZone": zone, "AvailableIpAddressCount": free, "VpcId": vpc}


def offered(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"InstanceTypeOfferings": [{"InstanceType": name, "Location": zone} for name, zone in pairs]}


def instances(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"Reservations": [{"Instances": list(rows)}]}


def running(
    name: str, cores: int, *, ours: bool = False, lifecycle: str = "", state: str = "running"
) -> dict[str, Any]:
    tags = {"gangline:uid": UID, "gangline:site": "use1"} if ours else {"Name": "theirs"}
    row = {
        "InstanceType": name,
        "State": {"Name": state},
        "CpuOptions": {"CoreCount": cores // 2, "ThreadsPerCore": 2},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    return row | ({"InstanceLifecycle": lifecycle} if lifecycle else {})


def routes(*tables: tuple[str, str]) -> dict[str, Any]:
    """Route tables of subnets (empty: the main one) with the state of their default route, or none."""
    rows = [
        {
            "Associations": [{"SubnetId": name} if name else {"Main": True}],
            "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "State": state}] if state else [],
        }
        for name, state in tables
    ]
    return {"RouteTables": rows}


def reserved(**changes: Any) -> dict[str, Any]:
    row = {
        "State": "active",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "TotalInstanceCount": 4,
        "ReservationType": "default",
    }
    return {"CapacityReservations": [row | changes]}


def image(**changes: Any) -> dict[str, Any]:
    disk = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100}}
    row = {
        "State": "available",
        "Architecture": "x86_64",
        "RootDeviceName": "/dev/xvda",
        "BlockDeviceMappings": [disk],
    }
    return {"Images": [row | changes]}


WELL: dict[str, Any] = {
    "GetCallerIdentity": {"Account": "123456789012"},
    "DescribeAvailabilityZones": {
        "AvailabilityZones": [{"ZoneName": zone, "State": "available"} for zone in ZONES]
    },
    "DescribeInstanceTypeOfferings": offered(*(("p5.48xlarge", zone) for zone in ZONES)),
    "GetServiceQuota": {"Quota": {"Value": 768.0}},
    "DescribeInstances": instances(),
    "DescribeSubnets": {"Subnets": [subnet("subnet-a", "us-east-1a"), subnet("subnet-b", "us-east-1b")]},
    "DescribeCapacityReservations": reserved(),
    "DescribeImages": image(),
    "DescribeVpcs": {"Vpcs": [{"VpcId": "vpc-1"}]},
    "DescribeRouteTables": routes(("", "active")),
    "CreateFleet": "DryRunOperation",
    "RunInstances": "DryRunOperation",
}


def look(
    spec: ClusterSpec, facts: StackFacts | None = None, skip: frozenset[str] = frozenset(), **changes: Any
) -> list[Finding]:
    """What is found in an account that is well but for `changes`."""
    return list(live.check(spec, "use1", facts, catalog.load(), Answers(**WELL | changes), NOW, skip))


def told(found: list[Finding]) -> list[str]:
    return [f"{one.severity} {one.place}: {one.words}" for one in found]


OFFERING = "pools[burst].offerings[0]"
FIXED = replace(
    cluster(), pools=(Pool("fixed", "use1", nodes=("f1", "f2", "f3", "f4", "f5"), offerings=(P5,)),)
)
