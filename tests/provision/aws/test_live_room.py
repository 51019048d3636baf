"""Looks for room in an account: types by zone, quotas, addresses, reservations; what each finds, and where it points.

Comes in: a spec, and an account that is all well but for one thing. Goes out: proof of severity, place and words.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("boto3")

from orchestrator.model.cluster import (
    ClusterSpec,
    Controller,
    ControllerInstance,
    Market,
    Offering,
    Vpc,
)
from orchestrator.model.findings import Severity
from orchestrator.model.stack_facts import FixedFact
from orchestrator.provision.aws.live_room import quota_of
from tests.provision.aws.accounts import (
    BLOCK,
    FACTS,
    FIXED,
    KEPT,
    OFFERING,
    P5,
    RESERVED,
    SPOT,
    ZONES,
    cluster,
    instances,
    look,
    offered,
    reserved,
    running,
    subnet,
    told,
)

HOSTED = replace(cluster(), controller=Controller(instance=ControllerInstance("use1", "m7i.large")))
ENDS_SOON = datetime(2026, 11, 30, 12, 20, tzinfo=UTC)

ROWS: list[tuple[str, ClusterSpec, dict[str, Any], list[str]]] = [
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
