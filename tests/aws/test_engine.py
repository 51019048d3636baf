"""The real engine over the mended moto server: up, an empty second preview, one change, drift, replacement, destroy.

What is proved here is the test ground itself, with a small program of its own; the program of Gangline's stacks has its
tests in tests/provision/aws.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pulumi.automation import CommandError

from tests.aws.fixture import Place
from tests.aws.moto_server import Account
from tests.aws.provider.server import KINDS

pytestmark = pytest.mark.system
TAGS = {"gangline:uid": "k3s8d0a1b2c3"}
ZONE = "us-east-1a"
RIGHTS = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"}],
}
POLICY = "arn:aws:iam::123456789012:policy/nodes"
# Types of the program `network`; what else the stand-in knows is in `rest`.
IN_NETWORK = {
    f"aws:{token}"
    for token in (
        "ec2/internetGateway:InternetGateway", "ec2/eip:Eip", "ec2/natGateway:NatGateway", "ec2/route:Route",
        "ec2/routeTable:RouteTable", "ec2/routeTableAssociation:RouteTableAssociation", "ssm/parameter:Parameter",
        "ec2/vpcEndpoint:VpcEndpoint", "vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        "vpc/securityGroupEgressRule:SecurityGroupEgressRule", "iam/instanceProfile:InstanceProfile",
        "ec2/launchTemplate:LaunchTemplate", "ec2/placementGroup:PlacementGroup",
    )
}  # fmt: skip
KEPT = [{"Name": "tag:gangline:uid", "Values": ["k3s8d0a1b2c3"]}]
DRIFT = 7  # exit code: changes although none were expected


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
                f"subnet-{zone}",
                vpc_id=net.id,
                cidr_block=f"10.64.{16 * at}.0/20",
                availability_zone=zone,
                tags=tags,
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
            "s3",
            vpc_id=net.id,
            service_name="com.amazonaws.us-east-1.s3",
            route_table_ids=[table.id],
            tags=tags,
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
                {
                    "device_index": 1, "network_card_index": 1, "interface_type": "efa-only",
                    "security_groups": [group.id],
                },
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
    assert made == {"create": 23}
    assert stack.step("preview") == {"same": 23}

    ec2 = aws.client("ec2")
    (mine,) = ec2.describe_volumes(Filters=KEPT)["Volumes"]
    assert stack.step("up", size=60) == {"update": 1, "same": 22}

    ec2.create_tags(Resources=[mine["VolumeId"]], Tags=[{"Key": "by-hand", "Value": "yes"}])
    assert stack.step("refresh") == {"update": 1, "same": 22}
    assert stack.step("up") == {"update": 1, "same": 22}
    tags = ec2.describe_volumes(VolumeIds=[mine["VolumeId"]])["Volumes"][0]["Tags"]
    assert [tag["Key"] for tag in tags] == ["gangline:uid"]

    other = aws.image("another")
    replaced = stack.step("up", image=other)
    assert (replaced["replace"], replaced["update"]) == (
        2,
        2,
    )  # both nodes; the template and the facts of its version

    assert stack.step("destroy") == {"delete": 23}
    assert [bill for bill in aws.bills() if bill["ended"] is None] == []
    left = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
    assert left == []


def test_what_is_protected_is_not_destroyed(stack: Stack, aws: Account) -> None:
    stack.step("up", protect=True)

    with pytest.raises(CommandError, match="protected"):
        stack.step("destroy")
    with pytest.raises(CommandError, match="protected"):
        stack.step("up", zones=["us-east-1b"])  # the disk would be made anew in the other zone

    assert len(aws.client("ec2").describe_volumes(Filters=KEPT)["Volumes"]) == 1
    stack.step("up", protect=False, zones=["us-east-1a", "us-east-1b"])
    stack.step("destroy")
    assert aws.client("ec2").describe_volumes(Filters=KEPT)["Volumes"] == []


def test_order_and_removal_of_nodes_touch_only_what_went(stack: Stack) -> None:
    stack.step("up", nodes=["train-01", "train-02", "train-03"])

    assert "update" not in stack.step("preview", nodes=["train-03", "train-01", "train-02"])
    assert stack.step("up", nodes=["train-03", "train-01"]) == {"delete": 1, "same": 23}


def test_errors_of_aws_come_through_in_their_own_words(stack: Stack, aws: Account) -> None:
    aws.room(1, type="p5.48xlarge")

    with pytest.raises(CommandError, match="InsufficientInstanceCapacity"):
        stack.step("up")

    assert len(aws.bills()) == 1
    stack.step("destroy")
    assert [bill for bill in aws.bills() if bill["ended"] is None] == []


def test_what_is_made_but_never_seen_stays_in_the_state(stack: Stack, aws: Account) -> None:
    aws.fail("UnauthorizedOperation", operation="DescribeVolumes", message="not you")

    with pytest.raises(CommandError, match="not you"):
        stack.step("up")

    assert len(aws.client("ec2").describe_volumes(Filters=KEPT)["Volumes"]) == 1
    done = stack.step("up")
    assert done["update"] == 1
    assert len(aws.client("ec2").describe_volumes(Filters=KEPT)["Volumes"]) == 1


def test_a_new_instance_that_is_not_seen_at_once_is_waited_for(stack: Stack, aws: Account) -> None:
    aws.visible_after(3, gone_after=2)

    stack.step("up")
    assert stack.step("preview") == {"same": 23}
    stack.step("destroy")

    assert [bill for bill in aws.bills() if bill["ended"] is None] == []


def rest(size: int = 1200) -> Callable[[], None]:
    """A program with the types that `network` does not have."""

    def program() -> None:
        from pulumi_aws import ebs, ec2, efs, fsx, iam

        net = ec2.Vpc("net", cidr_block="10.64.0.0/16", tags=TAGS)
        subnet = ec2.Subnet(
            "subnet", vpc_id=net.id, cidr_block="10.64.0.0/20", availability_zone=ZONE, tags=TAGS
        )
        group = ec2.SecurityGroup("group", vpc_id=net.id, description="files", tags=TAGS)
        files = efs.FileSystem("files", encrypted=True, throughput_mode="elastic", tags=TAGS)
        efs.MountTarget("files", file_system_id=files.id, subnet_id=subnet.id, security_groups=[group.id])
        fsx.LustreFileSystem(
            "fast", deployment_type="PERSISTENT_2", per_unit_storage_throughput=125, storage_capacity=size,
            subnet_ids=subnet.id, security_group_ids=[group.id], tags=TAGS,
        )  # fmt: skip
        role = iam.Role("role", assume_role_policy='{"Version": "2012-10-17", "Statement": []}', tags=TAGS)
        iam.RolePolicy("own", role=role.name, policy=json.dumps(RIGHTS))
        iam.RolePolicyAttachment("theirs", role=role.name, policy_arn=POLICY)
        node = ec2.Instance(
            "node", ami=ec2.get_ami(owners=["self"]).id, instance_type="m7i.large", subnet_id=subnet.id
        )
        disk = ebs.Volume("disk", availability_zone=ZONE, size=10, tags=TAGS)
        ec2.VolumeAttachment("disk", device_name="/dev/sdf", instance_id=node.id, volume_id=disk.id)

    return program


def test_every_other_type_of_the_table(pulumi_place: Place, aws: Account) -> None:
    aws.image()
    aws.client("iam").create_policy(PolicyName="nodes", PolicyDocument=json.dumps(RIGHTS))

    def stack(**settings: Any) -> Any:
        return pulumi_place.stack(rest(**settings))

    made = stack().up()
    types = {row["type"] for row in stack().export_stack().deployment["resources"]}

    assert made.summary.resource_changes == {"create": 13}
    assert {*KINDS} - types - IN_NETWORK == set()
    assert stack().preview().change_summary == {"same": 13}
    assert stack().refresh().summary.resource_changes == {"same": 13}
    stack().destroy()
    assert aws.client("efs").describe_file_systems()["FileSystems"] == []


PROGRAM = """
import pulumi
from pulumi_aws import ec2, get_caller_identity, ssm
import neighbour

config = pulumi.Config("test")
net = ec2.Vpc("net", cidr_block=config.require("cidr"), tags=neighbour.TAGS)
ssm.Parameter("facts", name="/gangline/test", type="String", value=net.id)
pulumi.export("account", get_caller_identity().account_id)
pulumi.export("secret", config.require_secret("word"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of two modules that `pulumi up` runs in its own folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    (folder / "__main__.py").write_text(PROGRAM)
    (folder / "neighbour.py").write_text('TAGS = {"gangline:uid": "k3s8d0a1b2c3"}\n')
    return folder


def test_pulumi_up_in_a_folder_with_a_stand_in_of_the_language_host(
    pulumi_place: Place, aws: Account, folder: Path
) -> None:
    def run(*words: str, code: int = 0) -> str:
        return pulumi_place.run(*words, cwd=folder, code=code).stdout

    run("stack", "init", "dev")
    run("config", "set", "aws:region", "us-east-1")
    run("config", "set", "test:cidr", "10.65.0.0/16")
    run("config", "set", "--secret", "test:word", "hidden")
    assert "3 to create" in run("preview")
    run("up", "--yes")
    run("preview", "--expect-no-changes")
    said = json.loads(run("stack", "output", "--json"))
    assert said == {"account": "123456789012", "secret": "[secret]"}
    assert "hidden" not in (pulumi_place.folder / "state/.pulumi/stacks/test/dev.json").read_text()

    (net,) = aws.client("ec2").describe_vpcs(Filters=KEPT)["Vpcs"]
    aws.client("ec2").create_tags(Resources=[net["VpcId"]], Tags=[{"Key": "by", "Value": "hand"}])
    assert "by" in run("preview", "--refresh", "--diff", "--expect-no-changes", code=DRIFT)
    run("destroy", "--yes")
    assert aws.client("ec2").describe_vpcs(Filters=KEPT)["Vpcs"] == []


def test_a_program_that_fails_says_where_with_a_stand_in_of_the_language_host(
    pulumi_place: Place, folder: Path
) -> None:
    (folder / "__main__.py").write_text("raise ValueError('no such pool')\n")
    pulumi_place.run("stack", "init", "dev", cwd=folder)

    done = pulumi_place.run("preview", cwd=folder, code=1)

    assert "no such pool" in done.stdout + done.stderr
