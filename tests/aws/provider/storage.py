"""Types of storage: FSx for Lustre, EFS and its mount targets.

Comes in: inputs in Pulumi's words. Goes out: calls of FSx and EFS. Called by: server, by way of `kinds.KINDS`.
"""

from __future__ import annotations

from typing import Any

from tests.aws.provider import shapes
from tests.aws.provider.kinds import Clients, Kind, Values, Wait, kind, read_or_none, words


def _tags(c: Clients, i: Values) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(c.tags(i).items())]


def _tags_of(row: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])}


# FSx for Lustre


LUSTRE = words(
    "deploymentType perUnitStorageThroughput dataCompressionType automaticBackupRetentionDays copyTagsToBackups "
    "weeklyMaintenanceStartTime dailyAutomaticBackupStartTime efaEnabled metadataConfiguration"
)


def _make_lustre(c: Clients, i: Values) -> str:
    shape = shapes.request("fsx", "CreateFileSystem").members["LustreConfiguration"]
    more = {
        "kmsKeyId": "KmsKeyId",
        "storageType": "StorageType",
        "fileSystemTypeVersion": "FileSystemTypeVersion",
    }
    made = c.fsx.create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=int(i["storageCapacity"]), SubnetIds=[i["subnetIds"]],
        SecurityGroupIds=i.get("securityGroupIds") or [], Tags=_tags(c, i),
        LustreConfiguration=shapes.to_aws(shape, {k: v for k, v in i.items() if k in LUSTRE}),
        **{theirs: i[ours] for ours, theirs in more.items() if i.get(ours)},
    )  # fmt: skip
    return str(made["FileSystem"]["FileSystemId"])


def _see_lustre(c: Clients, identity: str, _: Values) -> Values | None:
    answer = read_or_none(lambda: c.fsx.describe_file_systems(FileSystemIds=[identity]))
    if not answer or not answer["FileSystems"]:
        return None
    row = answer["FileSystems"][0]
    said = row.get("LustreConfiguration") or {}
    return {
        "storageCapacity": row["StorageCapacity"], "subnetIds": row["SubnetIds"][0], "tags": _tags_of(row),
        "arn": row["ResourceARN"], "dnsName": row.get("DNSName") or f"{identity}.fsx.{c.region}.amazonaws.com",
        "mountName": said.get("MountName") or "fsx", "ownerId": c.account(), "vpcId": row.get("VpcId", ""),
        "networkInterfaceIds": row.get("NetworkInterfaceIds", []),
    }  # fmt: skip


def _change_lustre(c: Clients, identity: str, old: Values, new: Values) -> None:
    if old.get("storageCapacity") != new.get("storageCapacity"):
        c.fsx.update_file_system(FileSystemId=identity, StorageCapacity=int(new["storageCapacity"]))
    arn = c.fsx.describe_file_systems(FileSystemIds=[identity])["FileSystems"][0]["ResourceARN"]
    if ending := sorted({*(old.get("tags") or {})} - {*c.tags(new)}):
        c.fsx.untag_resource(ResourceARN=arn, TagKeys=ending)
    c.fsx.tag_resource(ResourceARN=arn, Tags=_tags(c, new))


kind(
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    Kind(
        _make_lustre, _see_lustre, lambda c, identity, _: c.fsx.delete_file_system(FileSystemId=identity),
        _change_lustre,
        replace=words("subnetIds securityGroupIds deploymentType kmsKeyId storageType perUnitStorageThroughput "
                      "fileSystemTypeVersion efaEnabled importPath exportPath"),
        computed=("arn", "dnsName", "mountName", "ownerId", "vpcId", "networkInterfaceIds"),
    ),
)  # fmt: skip


# EFS


def _make_efs(c: Clients, i: Values) -> str:
    more = {
        "encrypted": "Encrypted", "kmsKeyId": "KmsKeyId", "performanceMode": "PerformanceMode",
        "throughputMode": "ThroughputMode", "provisionedThroughputInMibps": "ProvisionedThroughputInMibps",
        "availabilityZoneName": "AvailabilityZoneName",
    }  # fmt: skip
    asked = {theirs: i[ours] for ours, theirs in more.items() if i.get(ours) is not None}
    token = {"CreationToken": i["creationToken"]} if i.get("creationToken") else {}
    identity = str(c.efs.create_file_system(Tags=_tags(c, i), **token, **asked)["FileSystemId"])
    if i.get("lifecyclePolicies"):
        shape = shapes.request("efs", "PutLifecycleConfiguration").members["LifecyclePolicies"]
        rules = shapes.to_aws(shape, i["lifecyclePolicies"])
        c.efs.put_lifecycle_configuration(FileSystemId=identity, LifecyclePolicies=rules)
    return identity


def _see_efs(c: Clients, identity: str, _: Values) -> Values | None:
    answer = read_or_none(lambda: c.efs.describe_file_systems(FileSystemId=identity))
    if not answer or not answer["FileSystems"]:
        return None
    row = answer["FileSystems"][0]
    return {
        "creationToken": row["CreationToken"], "encrypted": row.get("Encrypted", False), "tags": _tags_of(row),
        "performanceMode": row["PerformanceMode"], "arn": row["FileSystemArn"], "ownerId": row["OwnerId"],
        "dnsName": f"{identity}.efs.{c.region}.amazonaws.com",
    }  # fmt: skip


def _change_efs(c: Clients, identity: str, old: Values, new: Values) -> None:
    if ending := sorted({*(old.get("tags") or {})} - {*c.tags(new)}):
        c.efs.untag_resource(ResourceId=identity, TagKeys=ending)
    c.efs.tag_resource(ResourceId=identity, Tags=_tags(c, new))


kind(
    "aws:efs/fileSystem:FileSystem",
    Kind(
        _make_efs, _see_efs, lambda c, identity, _: c.efs.delete_file_system(FileSystemId=identity), _change_efs,
        replace=words("creationToken encrypted kmsKeyId performanceMode availabilityZoneName"),
        computed=("arn", "dnsName", "ownerId", "creationToken"),
    ),
)  # fmt: skip


def _make_mount(c: Clients, i: Values) -> str:
    groups = {"SecurityGroups": i["securityGroups"]} if i.get("securityGroups") else {}
    made = c.efs.create_mount_target(FileSystemId=i["fileSystemId"], SubnetId=i["subnetId"], **groups)
    return str(made["MountTargetId"])


def _see_mount(c: Clients, identity: str, old: Values) -> Values | None:
    answer = read_or_none(lambda: c.efs.describe_mount_targets(MountTargetId=identity))
    if not answer or not answer["MountTargets"]:
        return None
    row = answer["MountTargets"][0]
    groups = c.efs.describe_mount_target_security_groups(MountTargetId=identity)["SecurityGroups"]
    return {
        "fileSystemId": row["FileSystemId"], "subnetId": row["SubnetId"], "ipAddress": row["IpAddress"],
        "networkInterfaceId": row.get("NetworkInterfaceId", ""),
        "dnsName": f"{row['FileSystemId']}.efs.{c.region}.amazonaws.com",
        **({"securityGroups": groups} if "securityGroups" in old else {}),
    }  # fmt: skip


def _change_mount(c: Clients, identity: str, _old: Values, new: Values) -> None:
    c.efs.modify_mount_target_security_groups(
        MountTargetId=identity, SecurityGroups=new.get("securityGroups") or []
    )


def _end_mount(c: Clients, identity: str, _: Values) -> None:
    c.efs.delete_mount_target(MountTargetId=identity)
    ended = lambda: True if _see_mount(c, identity, {}) is None else None  # noqa: E731
    Wait(f"{identity} is still there").until(ended)


kind(
    "aws:efs/mountTarget:MountTarget",
    Kind(
        _make_mount, _see_mount, _end_mount, _change_mount, replace=words("fileSystemId subnetId ipAddress"),
        computed=("ipAddress", "networkInterfaceId", "dnsName"),
    ),
)  # fmt: skip
