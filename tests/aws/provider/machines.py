"""Types of machines: launch templates, placement groups, instances, volumes and their attachments.

Comes in: inputs in Pulumi's words. Goes out: calls of EC2. Called by: server, by way of `kinds.KINDS`.
"""

from __future__ import annotations

import base64
from typing import Any

from tests.aws.provider import shapes
from tests.aws.provider.kinds import Clients, Kind, Values, Wait, kind, read_or_none, words
from tests.aws.provider.network import first, tag_spec, tags_of

TEMPLATE_OWN = words("name namePrefix description tags tagsAll updateDefaultVersion defaultVersion region")


# Launch templates


def _template_data(i: Values) -> dict[str, Any]:
    shape = shapes.request("ec2", "CreateLaunchTemplateVersion").members["LaunchTemplateData"]
    data: dict[str, Any] = shapes.to_aws(shape, {k: v for k, v in i.items() if k not in TEMPLATE_OWN})
    return data


def _make_template(c: Clients, i: Values) -> str:
    made = c.ec2.create_launch_template(
        LaunchTemplateName=i["name"], LaunchTemplateData=_template_data(i),
        TagSpecifications=tag_spec(c, i, "launch-template"),
        **({"VersionDescription": i["description"]} if i.get("description") else {}),
    )  # fmt: skip
    return str(made["LaunchTemplate"]["LaunchTemplateId"])


def _see_template(c: Clients, identity: str, old: Values) -> Values | None:
    row = first(
        read_or_none(lambda: c.ec2.describe_launch_templates(LaunchTemplateIds=[identity])), "LaunchTemplates"
    )
    if row is None:
        return None
    version = c.ec2.describe_launch_template_versions(LaunchTemplateId=identity, Versions=["$Latest"])
    data = version["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    like = {name: value for name, value in old.items() if name not in TEMPLATE_OWN}
    return shapes.from_aws(data, like) | {  # type: ignore[no-any-return]
        "name": row["LaunchTemplateName"], "latestVersion": row["LatestVersionNumber"], "tags": tags_of(row),
        "defaultVersion": row["DefaultVersionNumber"],
        "arn": f"arn:aws:ec2:{c.region}:{c.account()}:launch-template/{identity}",
    }  # fmt: skip


def _change_template(c: Clients, identity: str, old: Values, new: Values) -> None:
    if _template_data(old) == _template_data(new):
        return
    made = c.ec2.create_launch_template_version(
        LaunchTemplateId=identity, LaunchTemplateData=_template_data(new)
    )
    if new.get("updateDefaultVersion"):
        number = str(made["LaunchTemplateVersion"]["VersionNumber"])
        c.ec2.modify_launch_template(LaunchTemplateId=identity, DefaultVersion=number)


kind(
    "aws:ec2/launchTemplate:LaunchTemplate",
    Kind(
        _make_template, _see_template, lambda c, identity, _: c.ec2.delete_launch_template(LaunchTemplateId=identity),
        _change_template, tagged=True, named="name", replace=words("name namePrefix"),
        computed=("arn", "latestVersion", "defaultVersion"), moving=("latestVersion", "defaultVersion"),
    ),
)  # fmt: skip


# Placement groups


def _make_placement(c: Clients, i: Values) -> str:
    c.ec2.create_placement_group(
        GroupName=i["name"], Strategy=i["strategy"], TagSpecifications=tag_spec(c, i, "placement-group")
    )
    return str(i["name"])


def _see_placement(c: Clients, identity: str, _: Values) -> Values | None:
    row = first(
        read_or_none(lambda: c.ec2.describe_placement_groups(GroupNames=[identity])), "PlacementGroups"
    )
    return row and {
        "name": row["GroupName"], "strategy": row["Strategy"], "placementGroupId": row["GroupId"],
        "arn": row["GroupArn"], "tags": tags_of(row),
    }  # fmt: skip


kind(
    "aws:ec2/placementGroup:PlacementGroup",
    Kind(
        _make_placement, _see_placement, lambda c, identity, _: c.ec2.delete_placement_group(GroupName=identity),
        named="name", replace=words("name strategy partitionCount spreadLevel"), computed=("arn", "placementGroupId"),
    ),
)  # fmt: skip


# Instances


def _make_instance(c: Clients, i: Values) -> str:
    made = c.ec2.run_instances(MinCount=1, MaxCount=1, **_asked(c, i))
    identity: str = made["Instances"][0]["InstanceId"]
    return identity


def _asked(c: Clients, i: Values) -> dict[str, Any]:
    """RunInstances' request."""
    plain = {
        "ami": "ImageId", "instanceType": "InstanceType", "subnetId": "SubnetId", "keyName": "KeyName",
        "vpcSecurityGroupIds": "SecurityGroupIds", "privateIp": "PrivateIpAddress", "ebsOptimized": "EbsOptimized",
        "disableApiTermination": "DisableApiTermination",
    }  # fmt: skip
    asked: dict[str, Any] = {
        theirs: i[ours] for ours, theirs in plain.items() if i.get(ours) not in (None, [], "")
    }
    shape = shapes.request("ec2", "RunInstances")
    if template := i.get("launchTemplate"):
        known = {"id": "LaunchTemplateId", "name": "LaunchTemplateName", "version": "Version"}
        asked["LaunchTemplate"] = {
            theirs: template[ours] for ours, theirs in known.items() if template.get(ours)
        }
    for name in ("metadataOptions", "capacityReservationSpecification", "instanceMarketOptions"):
        if i.get(name):
            word = name[0].upper() + name[1:]
            asked[word] = shapes.to_aws(shape.members[word], i[name])
    if i.get("userDataBase64"):
        asked["UserData"] = base64.b64decode(i["userDataBase64"]).decode()
    elif i.get("userData"):
        asked["UserData"] = i["userData"]
    if i.get("iamInstanceProfile"):
        asked["IamInstanceProfile"] = {"Name": i["iamInstanceProfile"]}
    placement = {"GroupName": i.get("placementGroup"), "AvailabilityZone": i.get("availabilityZone")}
    if any(placement.values()):
        asked["Placement"] = {name: value for name, value in placement.items() if value}
    _public_address(asked, i)
    asked["BlockDeviceMappings"] = _disks(i)
    asked["TagSpecifications"] = [
        *tag_spec(c, i, "instance"),
        *tag_spec(c, {"tags": i.get("volumeTags")}, "volume"),
    ]
    return {name: value for name, value in asked.items() if value != []}


def _public_address(asked: dict[str, Any], i: Values) -> None:
    """A wish about the public address goes with an interface, and the subnet and groups then too."""
    if "associatePublicIpAddress" not in i:
        return
    nic = {
        "DeviceIndex": 0, "AssociatePublicIpAddress": i["associatePublicIpAddress"],
        "SubnetId": asked.pop("SubnetId", None), "Groups": asked.pop("SecurityGroupIds", None),
    }  # fmt: skip
    asked["NetworkInterfaces"] = [{name: value for name, value in nic.items() if value is not None}]


def _disks(i: Values) -> list[dict[str, Any]]:
    root = [{"deviceName": "/dev/sda1"} | i["rootBlockDevice"]] if i.get("rootBlockDevice") else []
    shape = shapes.request("ec2", "RunInstances").members["BlockDeviceMappings"].member.members["Ebs"]
    return [
        {"DeviceName": disk["deviceName"], "Ebs": shapes.to_aws(shape, disk)}
        for disk in [*root, *(i.get("ebsBlockDevices") or [])]
    ]


def _instance(c: Clients, identity: str) -> Any:
    answer = read_or_none(lambda: c.ec2.describe_instances(InstanceIds=[identity]))
    rows = [row for each in (answer or {}).get("Reservations", []) for row in each["Instances"]]
    return rows[0] if rows else None


def _see_instance(c: Clients, identity: str, old: Values) -> Values | None:
    row = _instance(c, identity)
    if row is None or row["State"]["Name"] in ("terminated", "shutting-down"):
        return None
    nics = sorted(row["NetworkInterfaces"], key=lambda nic: nic["Attachment"]["NetworkCardIndex"])
    profile = row.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2]
    seen = {
        "ami": row["ImageId"], "instanceType": row["InstanceType"], "subnetId": row.get("SubnetId"),
        "availabilityZone": row["Placement"]["AvailabilityZone"], "instanceState": row["State"]["Name"],
        "placementGroup": row["Placement"].get("GroupName", ""), "privateIp": row.get("PrivateIpAddress"),
        "privateDns": row.get("PrivateDnsName"), "publicIp": row.get("PublicIpAddress", ""), "tags": tags_of(row),
        "primaryNetworkInterfaceId": nics[0]["NetworkInterfaceId"] if nics else "",
        "arn": f"arn:aws:ec2:{c.region}:{c.account()}:instance/{identity}", "iamInstanceProfile": profile,
        "vpcSecurityGroupIds": [group["GroupId"] for group in row["SecurityGroups"]],
    }  # fmt: skip
    if "metadataOptions" in old:
        seen["metadataOptions"] = shapes.from_aws(row["MetadataOptions"], old["metadataOptions"])
    return seen


def _change_instance(c: Clients, identity: str, old: Values, new: Values) -> None:
    if old.get("instanceType") != new.get("instanceType"):
        c.ec2.stop_instances(InstanceIds=[identity])
        c.ec2.modify_instance_attribute(InstanceId=identity, InstanceType={"Value": new["instanceType"]})
        c.ec2.start_instances(InstanceIds=[identity])
    if old.get("vpcSecurityGroupIds") != new.get("vpcSecurityGroupIds"):
        c.ec2.modify_instance_attribute(InstanceId=identity, Groups=new["vpcSecurityGroupIds"])
    if old.get("metadataOptions") != new.get("metadataOptions"):
        shape = shapes.request("ec2", "ModifyInstanceMetadataOptions")
        wanted = shapes.to_aws(shape, new.get("metadataOptions") or {})
        c.ec2.modify_instance_metadata_options(InstanceId=identity, **wanted)


def _end_instance(c: Clients, identity: str, _: Values) -> None:
    c.ec2.terminate_instances(InstanceIds=[identity])
    Wait(f"{identity} still runs").until(lambda: _terminated(c, identity))


def _terminated(c: Clients, identity: str) -> bool | None:
    row = _instance(c, identity)
    return True if row is None or row["State"]["Name"] == "terminated" else None


kind(
    "aws:ec2/instance:Instance",
    Kind(
        _make_instance, _see_instance, _end_instance, _change_instance, tagged=True,
        replace=words(
            "ami subnetId availabilityZone keyName placementGroup privateIp associatePublicIpAddress "
            "ebsBlockDevices capacityReservationSpecification instanceMarketOptions launchTemplate"
        ),
        computed=("arn", "instanceState", "privateIp", "privateDns", "publicIp", "primaryNetworkInterfaceId",
                  "availabilityZone", "ami", "instanceType", "subnetId", "vpcSecurityGroupIds"),
    ),
)  # fmt: skip


# Volumes


def _make_volume(c: Clients, i: Values) -> str:
    plain = {
        "availabilityZone": "AvailabilityZone", "size": "Size", "type": "VolumeType", "encrypted": "Encrypted",
        "kmsKeyId": "KmsKeyId", "iops": "Iops", "throughput": "Throughput", "snapshotId": "SnapshotId",
    }  # fmt: skip
    asked = {theirs: i[ours] for ours, theirs in plain.items() if i.get(ours) is not None}
    return str(c.ec2.create_volume(TagSpecifications=tag_spec(c, i, "volume"), **asked)["VolumeId"])


def _see_volume(c: Clients, identity: str, _: Values) -> Values | None:
    row = first(read_or_none(lambda: c.ec2.describe_volumes(VolumeIds=[identity])), "Volumes")
    return row and {
        "availabilityZone": row["AvailabilityZone"], "size": row["Size"], "type": row["VolumeType"],
        "encrypted": row["Encrypted"], "tags": tags_of(row),
        "arn": f"arn:aws:ec2:{c.region}:{c.account()}:volume/{identity}",
    }  # fmt: skip


def _change_volume(c: Clients, identity: str, old: Values, new: Values) -> None:
    moved = {"size": "Size", "type": "VolumeType", "iops": "Iops", "throughput": "Throughput"}
    asked = {
        theirs: new[ours] for ours, theirs in moved.items() if ours in new and new[ours] != old.get(ours)
    }
    if asked:
        c.ec2.modify_volume(VolumeId=identity, **asked)


kind(
    "aws:ebs/volume:Volume",
    Kind(
        _make_volume, _see_volume, lambda c, identity, _: c.ec2.delete_volume(VolumeId=identity), _change_volume,
        tagged=True, replace=words("availabilityZone encrypted kmsKeyId snapshotId"), computed=("arn",),
    ),
)  # fmt: skip


def _make_attachment(c: Clients, i: Values) -> str:
    c.ec2.attach_volume(Device=i["deviceName"], InstanceId=i["instanceId"], VolumeId=i["volumeId"])
    return f"vai-{i['volumeId']}:{i['instanceId']}"


def _see_attachment(c: Clients, identity: str, _: Values) -> Values | None:
    volume, _colon, instance = identity.removeprefix("vai-").partition(":")
    row = first(read_or_none(lambda: c.ec2.describe_volumes(VolumeIds=[volume])), "Volumes")
    for each in row["Attachments"] if row else []:
        if each["InstanceId"] == instance:
            return {"deviceName": each["Device"], "instanceId": instance, "volumeId": volume}
    return None


def _end_attachment(c: Clients, _: str, outputs: Values) -> None:
    if outputs.get("stopInstanceBeforeDetaching"):
        c.ec2.stop_instances(InstanceIds=[outputs["instanceId"]])
    c.ec2.detach_volume(
        VolumeId=outputs["volumeId"], InstanceId=outputs["instanceId"], Device=outputs["deviceName"]
    )


kind(
    "aws:ec2/volumeAttachment:VolumeAttachment",
    Kind(
        _make_attachment, _see_attachment, _end_attachment, lambda *_: None,
        replace=words("deviceName instanceId volumeId"),
    ),
)  # fmt: skip
