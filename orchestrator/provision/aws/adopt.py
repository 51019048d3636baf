"""Finds in the account what a killed run had begun to make, by the marks that every create call carries.

Comes in: a session of boto3, the marks of a site. Goes out: a `stack.Find`. Called by: whoever calls `SiteStack.up` or
`SiteStack.destroy`. What is found twice, or can't be told by its marks, is not taken: instances among it are ended by
mark when the site ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
from botocore.exceptions import ClientError

from orchestrator.model.cluster import ClusterSpec
from orchestrator.provision.aws import facts
from orchestrator.provision.aws.marks import NODE, SITE, UID, Marks
from orchestrator.provision.aws.security import IAM_ROLE_NAME

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


def of_site(spec: ClusterSpec, name: str, uid: str) -> Callable[[str, str], str]:
    """The same with the session that boto3 makes of the environment."""
    site = spec.site(name)
    marks = Marks(uid, spec.name, name, site.tags)
    return by_marks(boto3.session.Session(region_name=site.region), marks)


def by_marks(session: Any, marks: Marks) -> Callable[[str, str], str]:
    """`find(type, name)` for that site: an id as Pulumi has it, or empty. Errors are botocore's own. Another site of
    the cluster has things of the same names: only what has this one's mark is found."""

    def find(kind: str, name: str) -> str:
        word = kind.rpartition(":")[2]
        if word == "Instance":
            return _only(_instances(session.client("ec2"), marks, name))
        if word in _TAGGED:
            return _only(_tagged(session.client("ec2"), marks, _TAGGED[word], name))
        if word in ("LustreFileSystem", "FileSystem"):
            service = "fsx" if word == "LustreFileSystem" else "efs"
            rows = session.client(service).describe_file_systems()["FileSystems"]
            return _only([row["FileSystemId"] for row in rows if _is(row, marks, name)])
        return _by_name(session, marks, word, name)

    return find


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
    rows = [row for one in ec2.describe_instances(Filters=mine)["Reservations"] for row in one["Instances"]]
    named = [row for row in rows if {"Key": NODE, "Value": name} in row.get("Tags", [])]
    found = named or [row for row in rows if _is(row, marks, name)]
    return [row["InstanceId"] for row in found]


def _tagged(ec2: Any, marks: Marks, prefix: str, name: str) -> list[str]:
    """Ids of all things of a kind that have the cluster's uid, the site's mark and that name."""
    having = []
    for key, value in _told_by(marks, name).items():
        asked = [{"Name": "key", "Values": [key]}, {"Name": "value", "Values": [value]}]
        having.append({row["ResourceId"] for row in ec2.describe_tags(Filters=asked)["Tags"]})
    return sorted(one for one in set.intersection(*having) if one.startswith(prefix))


def _by_name(session: Any, marks: Marks, word: str, name: str) -> str:
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
        return ""
    number, ask = asks[word]
    try:
        ask()
    except ClientError as error:
        if not _gone(error):
            raise
        return ""
    return number


def _gone(error: ClientError) -> bool:
    code = error.response["Error"]["Code"]
    return "NotFound" in code or code in ("NoSuchEntity", "InvalidPlacementGroup.Unknown")
