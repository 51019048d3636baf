"""The network of a site, against mocks: subnets that no other zone moves, and the ways out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.errors import InputError
from orchestrator.provision.aws.network import private_blocks, public_blocks
from tests.provision.aws.declared import declare, inputs_of
from tests.provision.aws.documents import (
    document,
    elastic,
    fixed,
    template,
)


@pytest.mark.parametrize(
    ("nat", "gateways", "public"),
    [
        ("one", ["nat-us-east-1a"], ["public-us-east-1a"]),
        ("per_zone", ["nat-us-east-1a", "nat-us-east-1b"], ["public-us-east-1a", "public-us-east-1b"]),
        ("none", [], []),
    ],
)
def test_nat(nat: str, gateways: list[str], public: list[str]) -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge"), f", vpc: {{nat: {nat}}}")))

    assert site.names("NatGateway") == gateways
    assert site.names("Eip") == gateways
    private = ["subnet-us-east-1a", "subnet-us-east-1b"]
    assert site.names("Subnet") == sorted(private + public)
    ways = {one.name: one.inputs.get("natGatewayId") for one in site.all("Route") if "public" not in one.name}
    used = [f"NatGateway/{gateways[min(at, len(gateways) - 1)]}" for at in range(2)] if gateways else []
    assert [ways[name] for name in sorted(ways)] == used
    assert all(not one.inputs["mapPublicIpOnLaunch"] for one in site.all("Subnet"))
    assert [one.id for one in site.facts.subnets] == [f"Subnet/{name}" for name in private]


def test_network_that_people_keep_is_used_and_nothing_is_made_in_it() -> None:
    vpc = ", vpc: {id: vpc-0123456789abcdef0, subnets: {us-east-1c: subnet-0123456789abcdef0}}"

    site = declare(inputs_of(document(fixed(), vpc)))

    made = {one.type.rpartition(":")[2] for one in site.custom()}
    assert not made & {"Vpc", "Subnet", "RouteTable", "Route", "NatGateway", "InternetGateway", "VpcEndpoint"}
    assert site.one("SecurityGroup", "nodes").inputs["vpcId"] == "vpc-0123456789abcdef0"
    assert {nic["subnetId"] for nic in template(site)["networkInterfaces"]} == {"subnet-0123456789abcdef0"}
    assert [(one.zone, one.id) for one in site.facts.subnets] == [("us-east-1c", "subnet-0123456789abcdef0")]


def test_endpoints() -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge"), ", vpc: {endpoints: [s3, ec2]}")))

    s3, ec2 = (site.one("VpcEndpoint", f"endpoint-{name}").inputs for name in ("s3", "ec2"))
    assert (s3["vpcEndpointType"], ec2["vpcEndpointType"]) == ("Gateway", "Interface")
    assert sorted(s3["routeTableIds"]) == ["RouteTable/routes-us-east-1a", "RouteTable/routes-us-east-1b"]
    assert ec2["serviceName"] == "com.amazonaws.us-east-1.ec2"
    assert ec2["privateDnsEnabled"] is True
    assert ec2["securityGroupIds"] == ["SecurityGroup/endpoints"]


LETTERS = [f"us-east-1{letter}" for letter in "abcdef"]


@given(st.sets(st.sampled_from(LETTERS), min_size=1), st.sampled_from(LETTERS))
@pytest.mark.property
def test_another_zone_moves_no_addresses(zones: set[str], more: str) -> None:
    for blocks in (private_blocks, public_blocks):
        before, after = (blocks("10.64.0.0/16", tuple(sorted(some))) for some in (zones, {*zones, more}))

        assert {zone: after[zone] for zone in zones} == before
        assert len(set(after.values())) == len(after)


def test_local_zones_have_a_place_of_their_own() -> None:
    blocks = private_blocks("10.64.0.0/16", ("us-east-1a", "us-east-1-dfw-2a"))

    assert blocks["us-east-1a"] == "10.64.0.0/20"
    assert len(set(blocks.values())) == 2


@pytest.mark.parametrize(
    ("cidr", "function"), [("10.0.0.0/25", private_blocks), ("10.0.0.0/21", public_blocks)]
)
def test_range_that_is_too_small_is_refused(cidr: str, function: Any) -> None:
    with pytest.raises(InputError) as caught:
        function(cidr, ("us-east-1a",))

    assert caught.value.path == "vpc.cidr"
