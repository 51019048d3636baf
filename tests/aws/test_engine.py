"""The real engine over the mended moto server: up, an empty second preview, one change, drift, replacement, destroy.

What is proved here is the test ground itself, with a small program of its own; the program of Gangline's stacks has its
tests in tests/provision/aws.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.aws.fixture import Place
from tests.aws.moto_server import Account

pytestmark = pytest.mark.system
TAGS = {"gangline:uid": "k3s8d0a1b2c3"}


def network(**settings: Any) -> Callable[[], None]:
    """A program: a network with a way out, a group that names itself, a role, a template, two nodes and a disk."""

    def program() -> None:
        import pulumi
        from pulumi_aws import ebs, ec2, iam, ssm, vpc

        tags = TAGS | settings.get("tags", {})
        net = ec2.Vpc("net", cidr_block="10.64.0.0/16", enable_dns_hostnames=True, tags=tags)
        zones = settings.get("zones", ["us-east-1a", "us-east-1b"])
        subnets = {
            zone: ec2.Subnet(
                f"subnet-{zone}", vpc_id=net.id, cidr_block=f"10.64.{16 * at}.0/20", availability_zone=zone, tags=tags
            )
            for at, zone in enumerate(zones)
        }
        gateway = ec2.InternetGateway("gateway", vpc_id=net.id, tags=tags)
        address = ec2.Eip("address", domain="vpc", tags=tags)
        nat = ec2.NatGateway(
            "nat", subnet_id=subnets[zones[0]].id, allocation_id=address.id, tags=tags,
            opts=pulumi.ResourceOptions(depends_on=[gateway]),
        )  # fmt: skip
        table = ec2.RouteTable("table", vpc_id=net.id, tags=tags)
        ec2.Route("out", route_table_id=table.id, destination_cidr_block="0.0.0.0/0", nat_gateway_id=nat.id)
        for zone, subnet in subnets.items():
            ec2.RouteTableAssociation(f"table-{zone}", route_table_id=table.id, subnet_id=subnet.id)
        ec2.VpcEndpoint(
            "s3", vpc_id=net.id, service_name="com.amazonaws.us-east-1.s3", route_table_ids=[table.id], tags=tags
        )
        group = ec2.SecurityGroup("group", vpc_id=net.id, description="nodes", tags=tags)
        for name, kind in (("in", vpc.SecurityGroupIngressRule), ("out", vpc.SecurityGroupEgressRule)):
            kind(
                f"group-{name}", security_group_id=group.id, ip_protocol="-1", tags=tags,
                referenced_security_group_id=group.id,
            )  # fmt: skip
        role = iam.Role("role", assume_role_policy='{"Version": "2012-10-17", "Statement": []}', tags=tags)
        profile = iam.InstanceProfile("profile", role=role.name, tags=tags)
        template = ec2.LaunchTemplate(
            "template", image_id=settings["image"], instance_type="p5.48xlarge",
            metadata_options={"http_tokens": "required", "http_put_response_hop_limit": 1}, tags=tags,
            update_default_version=True, user_data=settings.get("user_data", "IyEvYmluL3No"),
            network_interfaces=[
                {"device_index": 0, "network_card_index": 0, "security_groups": [group.id]},
                {"device_index": 1, "network_card_index": 1, "interface_type": "efa-only", "security_groups": [group.id]},
            ],
        )  # fmt: skip
        cluster = ec2.PlacementGroup("cluster", strategy="cluster", tags=tags)
        for name in settings.get("nodes", ["train-01", "train-02"]):
            ec2.Instance(
                name, ami=settings["image"], instance_type="p5.48xlarge", subnet_id=subnets[zones[0]].id,
                vpc_security_group_ids=[group.id], iam_instance_profile=profile.name, placement_group=cluster.name,
                metadata_options={"http_tokens": "required"}, tags=tags | {"gangline:node": name},
            )  # fmt: skip
        ebs.Volume(
            "keep", availability_zone=zones[0], size=settings.get("size", 50), type="gp3", encrypted=True, tags=tags,
            opts=pulumi.ResourceOptions(protect=settings.get("protect", False)),
        )  # fmt: skip
        facts = template.latest_version.apply(lambda version: f'{{"version": {version}}}')
        ssm.Parameter("facts", name="/gangline/test", type="String", value=facts, tags=tags)
        pulumi.export("net", net.id)

    return program


class Stack:
    """A stack of the program, with what each step did in counts, and its time printed."""

    def __init__(self, place: Place, account: Account) -> None:
        self.place, self.settings = place, {"image": account.image()}

    def step(self, verb: str, **settings: Any) -> dict[str, int]:
        """Carry `up`, `preview`, `refresh` or `destroy` out. How many resources it made, changed, left."""
        self.settings |= settings
        stack = self.place.stack(network(**self.settings))
        began = time.monotonic()
        done = getattr(stack, verb)()
        counts = done.change_summary if verb == "preview" else done.summary.resource_changes
        plain = {str(getattr(op, "value", op)): count for op, count in counts.items()}
        print(f"{verb}: {time.monotonic() - began:.1f} s {plain}")  # noqa: T201
        return plain


@pytest.fixture
def stack(pulumi_place: Place, aws: Account) -> Stack:
    return Stack(pulumi_place, aws)


def test_up_preview_change_drift_replace_destroy(stack: Stack, aws: Account) -> None:
    made = stack.step("up")
    assert made == {"create": 24}
    assert stack.step("preview") == {"same": 24}

    ec2 = aws.client("ec2")
    (mine,) = ec2.describe_volumes(Filters=[{"Name": "tag:gangline:uid", "Values": ["k3s8d0a1b2c3"]}])["Volumes"]
    assert stack.step("up", size=60) == {"update": 1, "same": 23}

    ec2.create_tags(Resources=[mine["VolumeId"]], Tags=[{"Key": "by-hand", "Value": "yes"}])
    assert stack.step("refresh") == {"update": 1, "same": 23}
    assert stack.step("up") == {"update": 1, "same": 23}
    tags = ec2.describe_volumes(VolumeIds=[mine["VolumeId"]])["Volumes"][0]["Tags"]
    assert [tag["Key"] for tag in tags] == ["gangline:uid"]

    other = aws.image("another")
    replaced = stack.step("up", image=other)
    assert (replaced["replace"], replaced["update"]) == (2, 2)  # both nodes; the template and the facts of its version

    assert stack.step("destroy") == {"delete": 24}
    assert [bill for bill in aws.bills() if bill["ended"] is None] == []
    left = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
    assert left == []
