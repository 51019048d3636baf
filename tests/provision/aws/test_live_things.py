"""Looks at what the file names: the account, images, the network, and a launch as it would be.

Comes in: a spec, and an account that is all well but for one thing. Goes out: proof of severity, place and words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("boto3")

from orchestrator import catalog
from orchestrator.model.cluster import (
    ClusterSpec,
    Offering,
    Subnet,
    Vpc,
)
from orchestrator.provision.aws import live
from tests.provision.aws.accounts import (
    FACTS,
    FIXED,
    NOW,
    OFFERING,
    P5,
    SPOT,
    UID,
    WELL,
    cluster,
    image,
    look,
    routes,
    subnet,
    told,
)
from tests.provision.aws.answers import Answers

ROWS: list[tuple[str, ClusterSpec, dict[str, Any], list[str]]] = [
    # --- credentials ---
    (
        "an account without one of the zones",
        cluster(zones=("us-east-1a", "us-east-1f")),
        {},
        ["error sites[use1].zones: the account has no zone us-east-1f"],
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


def test_another_account_than_the_sites_is_refused() -> None:
    (found,) = look(cluster(), FACTS, GetCallerIdentity={"Account": "999999999999"})
    assert found.words == "these credentials are of account 999999999999, and the site stands in 123456789012"
