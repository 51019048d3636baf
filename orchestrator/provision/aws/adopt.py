"""Finds in the account what a killed run had begun to make, by the marks that every create call carries.

Comes in: a session of boto3, the marks of a site. Goes out: a `stack.Find`. Called by: whoever calls `SiteStack.up` or
`SiteStack.destroy`. What AWS has no tags for is a link between two things that the record has: it is told by these.
What is found twice, or can't be told, is not taken: instances among it are ended by mark when the site ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.errors import Unavailable
from orchestrator.provision.aws import facts
from orchestrator.provision.aws.marks import NODE, SITE, UID, Marks
from orchestrator.provision.aws.security import IAM_ROLE_NAME
from orchestrator.provision.aws.tagged import having

# The type and the Pulumi name of what was being made, and the inputs that it was being made with.
Find = Callable[[str, str, Mapping[str, Any]], str]
# Types whose tags EC2 lists itself: the last word of Pulumi's type, and what its ids begin with.
_TAGGED = {
    "Eip": "eipalloc-",
    "InternetGateway": "igw-",
    "LaunchTemplate": "lt-",
    "NatGateway": "nat-",
    "RouteTable": "rtb-",
    "SecurityGroup": "sg-",
    "SecurityGroupEgressRule": "sgr-",
    "SecurityGroupIngressRule": "sgr-",
    "Subnet": "subnet-",
    "Volume": "vol-",
    "Vpc": "vpc-",
    "VpcEndpoint": "vpce-",
}
_ALIVE = ["pending", "running", "stopping", "stopped"]


def of_site(spec: ClusterSpec, name: str, uid: str) -> Find:
    """The same with the session that boto3 makes of the environment."""
    site = spec.site(name)
    marks = Marks(uid, spec.name, name, site.tags)
    return by_marks(boto3.session.Session(region_name=site.region), marks)


def by_marks(session: Any, marks: Marks) -> Find:
    """The `Find` of that site: an id as Pulumi has it, or empty; Unavailable where AWS does not say. Another site of
    the cluster has things of the same names: only what has this one's mark is found."""

    def find(kind: str, name: str, given: Mapping[str, Any]) -> str:
        try:
            return _only(_found(session, marks, kind.rpartition(":")[2], name, given))
        except ClientError as error:
            if _gone(error):
                return ""
            raise _unsure(kind, name, error) from error
        except BotoCoreError as error:
            raise _unsure(kind, name, error) from error

    return find


def _unsure(kind: str, name: str, error: Exception) -> Unavailable:
    """Nothing is forgotten as long as nobody could look whether it is there."""
    what = f"{kind.rpartition(':')[2]} {name}"
    words = f"whether a killed run has made {what} can't be asked: {error}"
    return Unavailable("aws.unsettled", words, "check the credentials and the way to AWS, and run it again")


def _found(session: Any, marks: Marks, word: str, name: str, given: Mapping[str, Any]) -> list[str]:
    if word in _LINKS:
        return _LINKS[word](session, given)
    if word == "Instance":
        return _instances(session.client("ec2"), marks, name)
    if word in _TAGGED:
        return _tagged(session.client("ec2"), marks, _TAGGED[word], name)
    if word in ("LustreFileSystem", "FileSystem"):
        service = "fsx" if word == "LustreFileSystem" else "efs"
        pages = session.client(service).get_paginator("describe_file_systems").paginate()
        rows = [row for page in pages for row in page["FileSystems"]]
        return [row["FileSystemId"] for row in rows if _is(row, marks, name)]
    return _by_name(session, marks, word, name)


def _only(found: list[str]) -> str:
    return found[0] if len(found) == 1 else ""


def _is(row: dict[str, Any], marks: Marks, name: str) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])}
    return all(tags.get(key) == value for key, value in _told_by(marks, name).items())


def _told_by(marks: Marks, name: str) -> dict[str, str]:
    """The tags that one thing alone has."""
    return {UID: marks.uid, SITE: marks.site, "Name": marks.tags(name)["Name"]}


def _instances(ec2: Any, marks: Marks, name: str) -> list[str]:
    """A fixed node by its name, the controller by what it is called; what was ended does not count."""
    mine = [
        {"Name": f"tag:{UID}", "Values": [marks.uid]},
        {"Name": f"tag:{SITE}", "Values": [marks.site]},
        {"Name": "instance-state-name", "Values": _ALIVE},
    ]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=mine)
    rows = [row for page in pages for one in page["Reservations"] for row in one["Instances"]]
    named = [row for row in rows if {"Key": NODE, "Value": name} in row.get("Tags", [])]
    found = named or [row for row in rows if _is(row, marks, name)]
    return [row["InstanceId"] for row in found]


def _tagged(ec2: Any, marks: Marks, prefix: str, name: str) -> list[str]:
    """Ids of all things of a kind that have the cluster's uid, the site's mark and that name."""
    return [one for _, one in having(ec2, _told_by(marks, name)) if one.startswith(prefix)]


def _by_name(session: Any, marks: Marks, word: str, name: str) -> list[str]:
    """Things that are known by the name that the program gave them."""
    iam, called = session.client("iam"), marks.name(name, most=IAM_ROLE_NAME)
    group, kept = (
        marks.name(name.removeprefix("placement-")),
        facts.parameter_name(marks.cluster, marks.uid, marks.site),
    )
    asks: dict[str, tuple[str, Callable[[], Any]]] = {
        "Role": (called, lambda: iam.get_role(RoleName=called)),
        "InstanceProfile": (called, lambda: iam.get_instance_profile(InstanceProfileName=called)),
        "PlacementGroup": (
            group,
            lambda: session.client("ec2").describe_placement_groups(GroupNames=[group]),
        ),
        "Parameter": (kept, lambda: session.client("ssm").get_parameter(Name=kept)),
    }
    if word not in asks:
        return []
    number, ask = asks[word]
    ask()  # an error where there is none of that name
    return [number]


# --- links, which have no tags ---------------------------------------------------------------------------------------


def _associations(session: Any, given: Mapping[str, Any]) -> list[str]:
    """Of a subnet with its route table."""
    links = [link for table in _tables(session, given) for link in table.get("Associations", ())]
    return [link["RouteTableAssociationId"] for link in links if link.get("SubnetId") == given["subnetId"]]


def _routes(session: Any, given: Mapping[str, Any]) -> list[str]:
    """Of a table to a range. Its id is made by the provider of a sum (terraform-provider-aws, RouteCreateID)."""
    block = given["destinationCidrBlock"]
    routes = [route for table in _tables(session, given) for route in table.get("Routes", ())]
    there = any(route.get("DestinationCidrBlock") == block for route in routes)
    return [route_id(given["routeTableId"], block)] if there else []


def route_id(table: str, block: str) -> str:
    """What Pulumi's provider calls a route."""
    return f"r-{table}{crc32(block.encode())}"


def _tables(session: Any, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    tables = [{"Name": "route-table-id", "Values": [given["routeTableId"]]}]
    return list(session.client("ec2").describe_route_tables(Filters=tables)["RouteTables"])


def _mounts(session: Any, given: Mapping[str, Any]) -> list[str]:
    """Of a file system in a subnet."""
    rows = session.client("efs").describe_mount_targets(FileSystemId=given["fileSystemId"])["MountTargets"]
    return [row["MountTargetId"] for row in rows if row["SubnetId"] == given["subnetId"]]


def _policies(session: Any, given: Mapping[str, Any]) -> list[str]:
    """Of a role, by its name."""
    names = session.client("iam").list_role_policies(RoleName=given["role"])["PolicyNames"]
    return [f"{given['role']}:{name}" for name in names if name == given["name"]]


_LINKS: dict[str, Callable[[Any, Mapping[str, Any]], list[str]]] = {
    "MountTarget": _mounts,
    "RolePolicy": _policies,
    "Route": _routes,
    "RouteTableAssociation": _associations,
}


def _gone(error: ClientError) -> bool:
    code = error.response["Error"]["Code"]
    return "NotFound" in code or code in ("NoSuchEntity", "InvalidPlacementGroup.Unknown")
