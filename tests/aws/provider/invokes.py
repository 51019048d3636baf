"""Functions of the provider: who asks, which partition, zones, images, subnets, parameters.

Comes in: arguments in Pulumi's words. Goes out: AWS's answer in them. Called by: server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.aws.provider.kinds import Clients, Values
from tests.aws.provider.network import tags_of


def _caller(c: Clients, _: Values) -> Values:
    said = c.sts.get_caller_identity()
    return {"accountId": said["Account"], "arn": said["Arn"], "userId": said["UserId"], "id": said["Account"]}


def _partition(c: Clients, _: Values) -> Values:
    return {
        "partition": "aws",
        "dnsSuffix": "amazonaws.com",
        "reverseDnsPrefix": "com.amazonaws",
        "id": c.region,
    }


def _region(c: Clients, _: Values) -> Values:
    return {"name": c.region, "region": c.region, "id": c.region, "endpoint": f"ec2.{c.region}.amazonaws.com"}


def _filters(a: Values) -> list[dict[str, Any]]:
    rows = [{"Name": row["name"], "Values": row["values"]} for row in a.get("filters") or []]
    return rows + [{"Name": f"tag:{key}", "Values": [value]} for key, value in (a.get("tags") or {}).items()]


def _zones(c: Clients, a: Values) -> Values:
    rows = c.ec2.describe_availability_zones(Filters=_filters(a))["AvailabilityZones"]
    return {
        "names": [row["ZoneName"] for row in rows], "zoneIds": [row["ZoneId"] for row in rows], "id": c.region
    }  # fmt: skip


def _image(c: Clients, a: Values) -> Values:
    owners = {"Owners": a["owners"]} if a.get("owners") else {}
    rows = c.ec2.describe_images(Filters=_filters(a), **owners)["Images"]
    if not rows:
        raise LookupError("Your query returned no results. Please change your search criteria and try again.")
    if len(rows) > 1 and not a.get("mostRecent"):
        raise LookupError(
            "Your query returned more than one result. Please try a more specific search criteria."
        )
    row = max(rows, key=lambda each: str(each["CreationDate"]))
    return {
        "id": row["ImageId"], "imageId": row["ImageId"], "name": row.get("Name", ""),
        "architecture": row.get("Architecture", "x86_64"), "rootDeviceName": row.get("RootDeviceName", ""),
        "ownerId": row["OwnerId"], "tags": tags_of(row),
    }  # fmt: skip


def _subnets(c: Clients, a: Values) -> Values:
    return {
        "ids": [row["SubnetId"] for row in c.ec2.describe_subnets(Filters=_filters(a))["Subnets"]],
        "id": c.region,
    }


def _subnet(c: Clients, a: Values) -> Values:
    asked: dict[str, Any] = {"SubnetIds": [a["id"]]} if a.get("id") else {"Filters": _filters(a)}
    (row,) = c.ec2.describe_subnets(**asked)["Subnets"]
    return {
        "id": row["SubnetId"], "vpcId": row["VpcId"], "cidrBlock": row["CidrBlock"], "tags": tags_of(row),
        "availabilityZone": row["AvailabilityZone"], "availableIpAddressCount": row["AvailableIpAddressCount"],
    }  # fmt: skip


def _vpc(c: Clients, a: Values) -> Values:
    asked: dict[str, Any] = {"VpcIds": [a["id"]]} if a.get("id") else {"Filters": _filters(a)}
    (row,) = c.ec2.describe_vpcs(**asked)["Vpcs"]
    return {"id": row["VpcId"], "cidrBlock": row["CidrBlock"], "tags": tags_of(row)}


def _parameter(c: Clients, a: Values) -> Values:
    row = c.ssm.get_parameter(Name=a["name"], WithDecryption=bool(a.get("withDecryption", True)))["Parameter"]
    return {
        "name": row["Name"], "type": row["Type"], "value": row["Value"], "insecureValue": row["Value"],
        "arn": row["ARN"], "version": row["Version"], "id": row["Name"],
    }  # fmt: skip


INVOKES: dict[str, Callable[[Clients, Values], Values]] = {
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getRegion:getRegion": _region,
    "aws:index/getAvailabilityZones:getAvailabilityZones": _zones,
    "aws:ec2/getAmi:getAmi": _image,
    "aws:ec2/getSubnets:getSubnets": _subnets,
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:ec2/getVpc:getVpc": _vpc,
    "aws:ssm/getParameter:getParameter": _parameter,
}
