"""Looks at an account: what each of them finds, where it points in the file, and what is said where none could look.

Comes in: a spec, and an account that is all well but for one thing. Goes out: proof of severity, place and words.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("boto3")

from orchestrator import catalog
from orchestrator.model.cluster import (
    ClusterSpec,
    Controller,
    ControllerInstance,
    Market,
    Offering,
    Pool,
    PoolSize,
    Site,
    SiteKind,
    Subnet,
    Vpc,
)
from orchestrator.model.findings import LIVE_CHECKS, Finding, Severity
from orchestrator.model.prices import microseconds
from orchestrator.model.stack_facts import FixedFact, StackFacts, SubnetFact, TemplateFact
from orchestrator.provision.aws import live
from orchestrator.provision.aws.live_room import quota_of
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


@pytest.mark.parametrize("facts", [None, FACTS], ids=["before the first apply", "later"])
@pytest.mark.parametrize("offering", [P5, SPOT, RESERVED], ids=lambda one: str(one.market))
def test_nothing_is_found_where_all_is_well(facts: StackFacts | None, offering: Offering) -> None:
    assert told(look(cluster(offering), facts)) == []


def test_the_names_of_the_checks_are_those_that_skip_takes() -> None:
    assert list(live.CHECKS) == list(LIVE_CHECKS)


def test_a_network_that_is_not_made_yet_is_not_looked_at() -> None:
    account = Answers(**WELL)
    assert live.check(cluster(vpc=Vpc()), "use1", None, catalog.load(), account, NOW) == ()
    assert not [name for name, _ in account.asked if name in ("DescribeSubnets", "DescribeVpcs")]


# --- each look -------------------------------------------------------------------------------------------------------

OFFERING = "pools[burst].offerings[0]"
FIXED = replace(
    cluster(), pools=(Pool("fixed", "use1", nodes=("f1", "f2", "f3", "f4", "f5"), offerings=(P5,)),)
)
HOSTED = replace(cluster(), controller=Controller(instance=ControllerInstance("use1", "m7i.large")))
ENDS_SOON = datetime(2026, 11, 30, 12, 20, tzinfo=UTC)

ROWS: list[tuple[str, ClusterSpec, dict[str, Any], list[str]]] = [
    # --- credentials ---
    (
        "an account without one of the zones",
        cluster(zones=("us-east-1a", "us-east-1f")),
        {},
        ["error sites[use1].zones: the account has no zone us-east-1f"],
    ),
    # --- types ---
    (
        "a type that no zone of the site has",
        cluster(),
        {"DescribeInstanceTypeOfferings": offered(("p5.48xlarge", "us-east-1d"))},
        [
            f"error {OFFERING}.type: p5.48xlarge is offered in none of the zones us-east-1a, us-east-1b",
        ],
    ),
    (
        "a type that one of the zones has",
        cluster(),
        {"DescribeInstanceTypeOfferings": offered(("p5.48xlarge", "us-east-1b"))},
        [
            f"warning {OFFERING}.type: p5.48xlarge is not offered in us-east-1a: nodes of it come in us-east-1b only"
        ],
    ),
    (
        "a type for the controller that is offered nowhere",
        HOSTED,
        {},
        [
            "error controller.instance.type: m7i.large is offered in none of the zones us-east-1a, us-east-1b",
        ],
    ),
    (
        "fixed nodes in a zone that lacks their type",
        FIXED,
        {
            "DescribeInstanceTypeOfferings": offered(("p5.48xlarge", "us-east-1b")),
            "GetServiceQuota": {"Quota": {"Value": 960.0}},
        },
        [
            (
                f"error {OFFERING.replace('burst', 'fixed')}.type: fixed nodes of a new pool stand in us-east-1a, and "
                "p5.48xlarge is not offered there"
            ),
            (
                f"warning {OFFERING.replace('burst', 'fixed')}.type: p5.48xlarge is not offered in us-east-1a: nodes "
                "of it come in us-east-1b only"
            ),
        ],
    ),
    # --- quota: 192 virtual processors a node ---
    (
        "a quota under the least size",
        cluster(low=2, high=2),
        {"GetServiceQuota": {"Quota": {"Value": 383.0}}},
        [
            (
                "error pools[burst].size.min: at least 384 virtual processors of 'Running On-Demand P instances' "
                "for pool burst, and 383 are left"
            )
        ],
    ),
    (
        "a quota under the largest size",
        cluster(low=2, high=4),
        {"GetServiceQuota": {"Quota": {"Value": 767.0}}},
        [
            (
                "warning pools[burst].size.max: up to 768 virtual processors of "
                "'Running On-Demand P instances' for pool burst, and 767 are left"
            )
        ],
    ),
    (
        "a quota that others use",
        cluster(low=2, high=2),
        {
            "GetServiceQuota": {"Quota": {"Value": 400.0}},
            "DescribeInstances": instances(
                running("p4d.24xlarge", 96),
                running("g5.48xlarge", 192),
                running("p5.48xlarge", 192, lifecycle="spot"),
            ),
        },
        [
            (
                "error pools[burst].size.min: at least 384 virtual processors of 'Running On-Demand P instances' "
                "for pool burst, and 304 are left"
            )
        ],
    ),
    (
        "fixed nodes over the quota",
        FIXED,
        {},
        [
            (
                "error pools[fixed].nodes: at least 960 virtual processors of 'Running On-Demand P instances' "
                "for pool fixed, and 768 are left"
            )
        ],
    ),
    (
        "a quota for P6 on spot, whose code nobody knows",
        cluster(Offering(("p6-b200.48xlarge",), Market.SPOT)),
        {"DescribeInstanceTypeOfferings": offered(*(("p6-b200.48xlarge", zone) for zone in ZONES))},
        [
            "unchecked sites[use1]: quota was not checked: which one holds for p6-b200.48xlarge on spot is not known"
        ],
    ),
    # --- addresses ---
    (
        "fewer addresses than the least size",
        cluster(low=4, high=4),
        {
            "DescribeSubnets": {
                "Subnets": [subnet("subnet-a", "us-east-1a", 1), subnet("subnet-b", "us-east-1b", 2)]
            }
        },
        [
            "error sites[use1].vpc: nodes take 4 addresses, and 2 subnets have 3 free beside the 0 in use by nodes"
        ],
    ),
    (
        "fewer addresses than the largest size",
        cluster(low=3, high=4),
        {
            "DescribeSubnets": {
                "Subnets": [subnet("subnet-a", "us-east-1a", 1), subnet("subnet-b", "us-east-1b", 2)]
            }
        },
        [
            "warning sites[use1].vpc: nodes take 4 addresses, and 2 subnets have 3 free beside the 0 in use by nodes"
        ],
    ),
    (
        "fixed nodes in a subnet without room",
        FIXED,
        {
            "DescribeSubnets": {
                "Subnets": [subnet("subnet-a", "us-east-1a", 4), subnet("subnet-b", "us-east-1b")]
            },
            "GetServiceQuota": {"Quota": {"Value": 960.0}},
        },
        [
            "error pools[fixed].nodes: fixed nodes take 5 addresses, and the subnet of us-east-1a has 4 free",
        ],
    ),
    # --- reservations ---
    (
        "a reservation that is not there",
        cluster(RESERVED),
        {"DescribeCapacityReservations": "InvalidCapacityReservationId.NotFound"},
        [f"error {OFFERING}.reservation: there is no capacity reservation cr-1 in us-east-1 of this account"],
    ),
    (
        "a reservation that has expired",
        cluster(RESERVED),
        {"DescribeCapacityReservations": reserved(State="expired", TotalInstanceCount=0)},
        [f"error {OFFERING}.reservation: cr-1 is expired"],
    ),
    (
        "a reservation of another type, elsewhere",
        cluster(RESERVED),
        {
            "DescribeCapacityReservations": reserved(
                InstanceType="p4d.24xlarge", AvailabilityZone="us-east-1d"
            )
        },
        [
            f"error {OFFERING}.reservation: cr-1 is of type p4d.24xlarge, not p5.48xlarge",
            f"error {OFFERING}.reservation: cr-1 is in us-east-1d, not in us-east-1a, us-east-1b",
        ],
    ),
    (
        "a block where a reservation is meant",
        cluster(RESERVED),
        {"DescribeCapacityReservations": reserved(ReservationType="capacity-block")},
        [f"error {OFFERING}.reservation: cr-1 is a capacity block reservation"],
    ),
    (
        "a reservation where a block is meant",
        cluster(BLOCK),
        {},
        [f"error {OFFERING}.reservation: cr-1 is a default reservation"],
    ),
    (
        "a reservation smaller than the pool",
        cluster(RESERVED, low=1, high=4),
        {"DescribeCapacityReservations": reserved(TotalInstanceCount=3)},
        [f"warning {OFFERING}.reservation: cr-1 holds 3 instances, and the pool has up to 4"],
    ),
    (
        "a reservation smaller than the least size",
        cluster(RESERVED, low=4, high=4),
        {"DescribeCapacityReservations": reserved(TotalInstanceCount=3)},
        [f"error {OFFERING}.reservation: cr-1 holds 3 instances, and the pool has at least 4"],
    ),
    (
        "a block that ends before a node is ready",  # nodes have 25 minutes to be so
        cluster(BLOCK),
        {"DescribeCapacityReservations": reserved(ReservationType="capacity-block", EndDate=ENDS_SOON)},
        [f"error {OFFERING}.reservation: cr-1 ends in 20m, before a node is ready"],
    ),
    (
        "a block that has not begun",
        cluster(BLOCK),
        {"DescribeCapacityReservations": reserved(ReservationType="capacity-block", State="scheduled")},
        [f"warning {OFFERING}.reservation: cr-1 is scheduled: nothing starts in it before it is active"],
    ),
    # --- images ---
    (
        "an image that is not there",
        cluster(),
        {"DescribeImages": "InvalidAMIID.NotFound"},
        ["error sites[use1].image: there is no image ami-1 in us-east-1 that this account may use"],
    ),
    (
        "a parameter that is not there",
        cluster(image="ssm:/lab/image"),
        {"GetParameter": "ParameterNotFound"},
        ["error sites[use1].image: there is no parameter /lab/image in us-east-1"],
    ),
    (
        "an image for another architecture, too large, and old",
        cluster(image="ssm:/lab/image"),
        {
            "GetParameter": {"Parameter": {"Value": "ami-9"}},
            "DescribeImages": image(
                Architecture="arm64",
                DeprecationTime="2026-11-01T00:00:00.000Z",
                BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 250}}],
            ),
        },
        [
            "error sites[use1].image: image ami-9 is for arm64, and the pool's types are x86_64",
            "error sites[use1].image: image ami-9 needs 250 GiB, and the root disk of pool burst has 200",
            "warning sites[use1].image: image ami-9 is deprecated since 2026-11-01",
        ],
    ),
    # --- the network ---
    (
        "a VPC that is not there",
        cluster(),
        {"DescribeVpcs": "InvalidVpcID.NotFound"},
        ["error sites[use1].vpc.id: there is no VPC vpc-1 in us-east-1 of this account"],
    ),
    (
        "subnets that are not there, or elsewhere",
        cluster(),
        {"DescribeSubnets": {"Subnets": [subnet("subnet-a", "us-east-1c")]}},
        [
            "error sites[use1].vpc.subnets.us-east-1a: subnet subnet-a is in us-east-1c, not in us-east-1a",
            "error sites[use1].vpc.subnets.us-east-1b: subnet subnet-b does not exist in this account and region",
        ],
    ),
    (
        "a subnet of another network",
        cluster(),
        {
            "DescribeSubnets": {
                "Subnets": [subnet("subnet-a", "us-east-1a", vpc="vpc-2"), subnet("subnet-b", "us-east-1b")]
            }
        },
        ["error sites[use1].vpc.subnets.us-east-1a: subnet subnet-a is in vpc-2, not in vpc-1"],
    ),
    (
        "subnets without a way out",
        cluster(),
        {"DescribeRouteTables": routes(("", ""), ("subnet-a", "active"))},
        [
            (
                "warning sites[use1].vpc.subnets.us-east-1b: subnet subnet-b has no way out: its nodes may "
                "not reach the controller"
            )
        ],
    ),
    (
        "a way out that leads nowhere",
        cluster(),
        {"DescribeRouteTables": routes(("subnet-b", "active"), ("", "blackhole"))},
        [
            (
                "warning sites[use1].vpc.subnets.us-east-1a: subnet subnet-a has no way out: its nodes may "
                "not reach the controller"
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("spec", "changes", "wanted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_what_is_not_well_is_said_with_its_place(
    spec: ClusterSpec, changes: dict[str, Any], wanted: list[str]
) -> None:
    assert told(look(spec, **changes)) == wanted


def test_what_a_pool_can_buy_elsewhere_does_not_have_to_fit_one_quota() -> None:
    """On demand there is room for none of them, on spot for all: only that not all can be on demand is said."""

    def quota(request: dict[str, Any]) -> dict[str, Any]:
        return {"Quota": {"Value": 768.0 if request["QuotaCode"] == "L-C4BD4855" else 0.0}}

    assert [one.severity for one in look(cluster(P5, SPOT), GetServiceQuota=quota)] == [Severity.WARNING]


def test_nodes_that_are_there_are_counted_once() -> None:
    """Four nodes run, the pool has four: nothing more is needed, of processors or of addresses."""
    ours = instances(*(running("p5.48xlarge", 192, ours=True) for _ in range(4)))
    full = {"Subnets": [subnet("subnet-a", "us-east-1a", 0), subnet("subnet-b", "us-east-1b", 0)]}

    found = look(cluster(low=4, high=4), FACTS, DescribeInstances=ours, DescribeSubnets=full)

    assert told(found) == []


@pytest.mark.parametrize(
    ("state", "wanted"), [("pending", 1), ("running", 1), ("stopping", 0), ("stopped", 0)]
)
def test_what_is_stopped_counts_against_no_quota(state: str, wanted: int) -> None:
    """Four nodes fill the quota: what others run beside them is in the way, what they have stopped is not."""
    theirs = instances(running("p5.48xlarge", 192, state=state))
    assert len(look(cluster(low=4, high=4), FACTS, DescribeInstances=theirs)) == wanted


def test_zones_are_those_that_the_stack_would_stand_in() -> None:
    """Without zones in the file: no local zone, though the account has one, and where the network is kept its zones."""

    def zones(request: dict[str, Any]) -> dict[str, Any]:
        plain = [{"ZoneName": zone, "State": "available"} for zone in ZONES]
        local = {"ZoneName": "us-east-1-dfw-2a", "State": "available"}
        return {"AvailabilityZones": plain if request.get("Filters") else [*plain, local]}

    nowhere = offered(("p5.48xlarge", "us-east-1-dfw-2a"))
    made = look(
        cluster(zones=(), vpc=Vpc()), DescribeAvailabilityZones=zones, DescribeInstanceTypeOfferings=nowhere
    )
    kept = look(cluster(vpc=Vpc(id="vpc-1", subnets=KEPT.subnets[:1])), DescribeInstanceTypeOfferings=nowhere)

    lacking = "p5.48xlarge is offered in none of the zones "
    assert [one.words for one in made if one.name == "types"] == [lacking + "us-east-1a, us-east-1b"]
    assert [one.words for one in kept if one.name == "types"] == [lacking + "us-east-1a"]


def test_fixed_nodes_that_stand_are_not_placed_again() -> None:
    """They are where they are: neither another first zone nor a full subnet is of any matter to them."""
    facts = replace(
        FACTS, fixed=tuple(FixedFact(name, "fixed", f"i-{name}", "") for name in FIXED.pools[0].nodes)
    )
    spec = replace(FIXED, sites=(replace(FIXED.sites[0], zones=()),))
    ours = instances(*(running("p5.48xlarge", 192, ours=True) for _ in facts.fixed))

    found = look(
        spec,
        facts,
        DescribeInstanceTypeOfferings=offered(("p5.48xlarge", "us-east-1b")),
        DescribeSubnets={
            "Subnets": [subnet("subnet-a", "us-east-1a", 0), subnet("subnet-b", "us-east-1b", 0)]
        },
        DescribeInstances=ours,
        GetServiceQuota={"Quota": {"Value": 960.0}},
    )

    assert told(found) == []


def test_a_limit_that_nobody_raised_is_the_one_of_all_accounts() -> None:
    found = look(
        cluster(low=1, high=1),
        GetServiceQuota="NoSuchResourceException",
        GetAWSDefaultServiceQuota={"Quota": {"Value": 0.0}},
    )
    assert [one.name for one in found] == ["quota"]


@pytest.mark.parametrize(
    ("name", "market", "code"),
    [
        ("p4d.24xlarge", Market.ON_DEMAND, "L-417A185B"),
        ("p6-b300.48xlarge", Market.ON_DEMAND, "L-417A185B"),
        ("p5en.48xlarge", Market.CAPACITY_RESERVATION, "L-417A185B"),
        ("g6e.48xlarge", Market.ON_DEMAND, "L-DB2E81BA"),
        ("gr6.4xlarge", Market.SPOT, "L-3819A6DF"),
        ("p4de.24xlarge", Market.SPOT, "L-7212CCBC"),
        ("p5en.48xlarge", Market.SPOT, "L-C4BD4855"),
        ("m7i.large", Market.ON_DEMAND, "L-1216C47A"),
        ("c7gn.large", Market.SPOT, "L-34B43A08"),
        ("p5.48xlarge", Market.CAPACITY_BLOCK, None),
        ("p6-b200.48xlarge", Market.SPOT, None),
        ("trn2.48xlarge", Market.ON_DEMAND, None),
    ],
)
def test_each_family_has_its_quota(name: str, market: Market, code: str | None) -> None:
    found = quota_of(name, market)
    assert (found[0] if found is not None else None) == code


# --- a launch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offering", "kind"), [(P5, "on-demand"), (SPOT, "spot")], ids=["on demand", "spot"])
def test_the_launch_is_asked_with_the_template_and_all_subnets(offering: Offering, kind: str) -> None:
    account = Answers(**WELL)

    live.check(cluster(offering, low=3), "use1", FACTS, catalog.load(), account, NOW)

    requests = account.requests("CreateFleet")
    assert [one["DryRun"] for one in requests] == [True, True]
    assert not [one for one in requests if UID in one["ClientToken"]]  # not the token of a launch to come
    overrides = []
    for one in requests:
        (config,) = one["LaunchTemplateConfigs"]
        assert config["LaunchTemplateSpecification"] == {"LaunchTemplateId": "lt-1", "Version": "3"}
        overrides += config["Overrides"]
        assert one["TargetCapacitySpecification"] == {
            "TotalTargetCapacity": 3,
            "DefaultTargetCapacityType": kind,
        }
    assert [one["SubnetId"] for one in overrides] == ["subnet-a", "subnet-b"]


def test_a_launch_is_asked_for_only_where_the_stack_has_a_subnet() -> None:
    """One zone came into the file and one left it since the last apply: neither is asked for, and neither is told."""
    account = Answers(**WELL)
    vpc = Vpc(id="vpc-1", subnets=(Subnet("us-east-1b", "subnet-b"), Subnet("us-east-1c", "subnet-c")))
    spec = cluster(vpc=vpc, zones=())

    found = live.check(spec, "use1", FACTS, catalog.load(), account, NOW, frozenset({"types", "network"}))

    assert [one.name for one in found if one.name == "launch"] == []
    asked = [one["LaunchTemplateConfigs"][0]["Overrides"] for one in account.requests("CreateFleet")]
    assert [override["SubnetId"] for (override,) in asked] == ["subnet-b"]


def test_fixed_nodes_are_asked_one_by_one() -> None:
    facts = replace(FACTS, templates=(replace(FACTS.templates[0], pool="fixed"),))
    account = Answers(**WELL)

    live.check(FIXED, "use1", facts, catalog.load(), account, NOW)

    (request,) = account.requests("RunInstances")
    assert request["LaunchTemplate"] == {"LaunchTemplateId": "lt-1", "Version": "3"}
    assert request["DryRun"] is True


def test_what_ec2_would_refuse_is_said_in_its_own_words() -> None:
    found = look(cluster(), FACTS, CreateFleet="InvalidParameterCombination")
    assert told(found) == [
        (
            f"error {OFFERING}: EC2 would refuse a launch of p5.48xlarge: InvalidParameterCombination was answered "
            "(InvalidParameterCombination)"
        )
    ]


def test_an_image_that_was_looked_up_once_is_the_one_that_is_looked_at() -> None:
    facts = replace(FACTS, images=(("ssm:/lab/image", "ami-7"),))
    account = Answers(**WELL)

    live.check(cluster(image="ssm:/lab/image"), "use1", facts, catalog.load(), account, NOW)

    assert account.requests("DescribeImages") == [{"ImageIds": ["ami-7"]}]
    assert account.requests("GetParameter") == []


# --- where nobody can look -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "check"),
    [
        ("DescribeInstanceTypeOfferings", "types"),
        ("GetServiceQuota", "quota"),
        ("DescribeSubnets", "addresses"),
        ("DescribeCapacityReservations", "reservations"),
        ("DescribeImages", "images"),
        ("DescribeVpcs", "network"),
        ("CreateFleet", "launch"),
    ],
)
def test_a_right_that_is_missing_is_named_and_nothing_counts_as_passed(operation: str, check: str) -> None:
    facts = replace(FACTS, templates=(replace(FACTS.templates[0], reservation="cr-1"),))
    refused: dict[str, Any] = {operation: "UnauthorizedOperation"}

    found = look(cluster(RESERVED), facts, **refused)

    unchecked = [one for one in found if one.name == check]
    assert [one.severity for one in unchecked] == [Severity.UNCHECKED]
    assert unchecked[0].words.endswith(f"these credentials may not call {operation}")
    assert unchecked[0].hint == f"`--skip {check}` leaves it out"


def test_without_credentials_nothing_else_is_asked() -> None:
    account = Answers(**WELL | {"GetCallerIdentity": "ExpiredToken"})

    (found,) = live.check(cluster(), "use1", None, catalog.load(), account, NOW)

    assert (found.name, found.severity, found.place) == ("credentials", Severity.ERROR, "sites[use1].region")
    assert "ExpiredToken" in found.words
    assert [name for name, _ in account.asked] == ["GetCallerIdentity"]


def test_another_account_than_the_sites_is_refused() -> None:
    (found,) = look(cluster(), FACTS, GetCallerIdentity={"Account": "999999999999"})
    assert found.words == "these credentials are of account 999999999999, and the site stands in 123456789012"


ASKED = (
    "GetCallerIdentity",
    "DescribeInstanceTypeOfferings",
    "GetServiceQuota",
    "DescribeImages",
    "DescribeSubnets",
    "DescribeCapacityReservations",
    "DescribeVpcs",
    "CreateFleet",
)


@pytest.mark.parametrize("name", LIVE_CHECKS)
def test_a_look_is_left_out_by_name(name: str) -> None:
    broken: dict[str, Any] = dict.fromkeys(ASKED, "RequestLimitExceeded")
    facts = replace(FACTS, templates=(replace(FACTS.templates[0], reservation="cr-1"),))

    skipped = look(cluster(RESERVED), facts, frozenset((f"aws.{name}",)), **broken)
    only = look(
        cluster(RESERVED),
        facts,
        frozenset(code for one, code in LIVE_CHECKS.items() if one != name),
        **broken,
    )

    assert name not in {one.name for one in skipped}
    assert {one.name for one in only} == {name}


def test_nobody_waits_longer_than_the_deadline() -> None:
    """One service does not answer: the others are heard, and that one is said not to be checked."""
    answered = threading.Event()

    def never(_: dict[str, Any]) -> dict[str, Any]:
        answered.wait(60)
        return {"Images": []}

    account = Answers(**WELL | {"DescribeImages": never, "DescribeVpcs": "InvalidVpcID.NotFound"})
    try:
        found = live.check(cluster(), "use1", None, catalog.load(), account, NOW, deadline_s=1)
    finally:
        answered.set()

    assert told(list(found)) == [
        "error sites[use1].vpc.id: there is no VPC vpc-1 in us-east-1 of this account",
        "unchecked sites[use1]: images was not checked: AWS did not answer within 1 s",
    ]


def test_only_the_wanted_spec_is_looked_at() -> None:
    """A reservation of the facts that the file no longer names has expired long ago, and is not asked about."""
    facts = replace(
        FACTS,
        templates=(*FACTS.templates, TemplateFact("burst", "p5.48xlarge", "lt-0", 1, "ami-0", "", "cr-9")),
    )
    account = Answers(**WELL | {"DescribeCapacityReservations": reserved(State="expired")})

    assert live.check(cluster(), "use1", facts, catalog.load(), account, NOW) == ()
    assert account.requests("DescribeCapacityReservations") == []
