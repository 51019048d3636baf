"""Types of IAM and SSM: roles, their policies, instance profiles, parameters.

Comes in: inputs in Pulumi's words. Goes out: calls of IAM and SSM. Called by: server, by way of `kinds.KINDS`.
"""

from __future__ import annotations

import json
from typing import Any

from tests.aws.provider.kinds import Clients, Kind, Values, kind, read_or_none, words


def _tags(c: Clients, i: Values) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(c.tags(i).items())]


def _as_text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def same_document(old: Any, seen: Any) -> Any:
    """The old text where both say the same, so that spaces are no drift."""
    try:
        return old if json.loads(_as_text(old)) == json.loads(_as_text(seen)) else _as_text(seen)
    except ValueError:
        return _as_text(seen)


# Roles


def _make_role(c: Clients, i: Values) -> str:
    extra = {"path": "Path", "description": "Description", "permissionsBoundary": "PermissionsBoundary"}
    c.iam.create_role(
        RoleName=i["name"], AssumeRolePolicyDocument=_as_text(i["assumeRolePolicy"]), Tags=_tags(c, i),
        **{theirs: i[ours] for ours, theirs in extra.items() if i.get(ours)},
    )  # fmt: skip
    for arn in i.get("managedPolicyArns") or []:
        c.iam.attach_role_policy(RoleName=i["name"], PolicyArn=arn)
    return str(i["name"])


def _see_role(c: Clients, identity: str, old: Values) -> Values | None:
    answer = read_or_none(lambda: c.iam.get_role(RoleName=identity))
    if answer is None:
        return None
    row = answer["Role"]
    return {
        "name": row["RoleName"], "arn": row["Arn"], "uniqueId": row["RoleId"], "path": row["Path"],
        "assumeRolePolicy": same_document(old.get("assumeRolePolicy"), row["AssumeRolePolicyDocument"]),
        "tags": {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])},
    }  # fmt: skip


def _change_role(c: Clients, identity: str, old: Values, new: Values) -> None:
    c.iam.update_assume_role_policy(RoleName=identity, PolicyDocument=_as_text(new["assumeRolePolicy"]))
    if ending := sorted({*(old.get("tags") or {})} - {*c.tags(new)}):
        c.iam.untag_role(RoleName=identity, TagKeys=ending)
    c.iam.tag_role(RoleName=identity, Tags=_tags(c, new))


def _end_role(c: Clients, identity: str, _: Values) -> None:
    for row in c.iam.list_attached_role_policies(RoleName=identity)["AttachedPolicies"]:
        c.iam.detach_role_policy(RoleName=identity, PolicyArn=row["PolicyArn"])
    c.iam.delete_role(RoleName=identity)


kind(
    "aws:iam/role:Role",
    Kind(
        _make_role, _see_role, _end_role, _change_role, named="name", replace=words("name namePrefix path"),
        computed=("arn", "uniqueId"),
    ),
)  # fmt: skip


# Policies of a role


def _put_policy(c: Clients, i: Values) -> str:
    c.iam.put_role_policy(RoleName=i["role"], PolicyName=i["name"], PolicyDocument=_as_text(i["policy"]))
    return f"{i['role']}:{i['name']}"


def _see_policy(c: Clients, identity: str, old: Values) -> Values | None:
    role, _colon, name = identity.partition(":")
    answer = read_or_none(lambda: c.iam.get_role_policy(RoleName=role, PolicyName=name))
    return answer and {
        "role": role, "name": name, "policy": same_document(old.get("policy"), answer["PolicyDocument"])
    }  # fmt: skip


def _end_policy(c: Clients, identity: str, _: Values) -> None:
    role, _colon, name = identity.partition(":")
    c.iam.delete_role_policy(RoleName=role, PolicyName=name)


kind(
    "aws:iam/rolePolicy:RolePolicy",
    Kind(
        _put_policy, _see_policy, _end_policy, lambda c, _identity, _old, new: _ignore(_put_policy(c, new)),
        named="name", replace=words("role name namePrefix"),
    ),
)  # fmt: skip


def _ignore(_: Any) -> None:
    return


def _attach(c: Clients, i: Values) -> str:
    c.iam.attach_role_policy(RoleName=i["role"], PolicyArn=i["policyArn"])
    return f"{i['role']}/{i['policyArn']}"


def _see_attached(c: Clients, identity: str, _: Values) -> Values | None:
    role, _slash, arn = identity.partition("/")
    answer = read_or_none(lambda: c.iam.list_attached_role_policies(RoleName=role))
    found = answer and any(row["PolicyArn"] == arn for row in answer["AttachedPolicies"])
    return {"role": role, "policyArn": arn} if found else None


def _detach(c: Clients, identity: str, _: Values) -> None:
    role, _slash, arn = identity.partition("/")
    c.iam.detach_role_policy(RoleName=role, PolicyArn=arn)


kind(
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    Kind(_attach, _see_attached, _detach, replace=words("role policyArn")),
)


# Instance profiles


def _make_profile(c: Clients, i: Values) -> str:
    path = {"Path": i["path"]} if i.get("path") else {}
    c.iam.create_instance_profile(InstanceProfileName=i["name"], Tags=_tags(c, i), **path)
    if i.get("role"):
        c.iam.add_role_to_instance_profile(InstanceProfileName=i["name"], RoleName=i["role"])
    return str(i["name"])


def _see_profile(c: Clients, identity: str, _: Values) -> Values | None:
    answer = read_or_none(lambda: c.iam.get_instance_profile(InstanceProfileName=identity))
    if answer is None:
        return None
    row = answer["InstanceProfile"]
    return {
        "name": identity, "arn": row["Arn"], "uniqueId": row["InstanceProfileId"], "path": row["Path"],
        "tags": {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])},
        **({"role": row["Roles"][0]["RoleName"]} if row["Roles"] else {}),
    }  # fmt: skip


def _change_profile(c: Clients, identity: str, old: Values, new: Values) -> None:
    if old.get("role") != new.get("role"):
        if old.get("role"):
            c.iam.remove_role_from_instance_profile(InstanceProfileName=identity, RoleName=old["role"])
        c.iam.add_role_to_instance_profile(InstanceProfileName=identity, RoleName=new["role"])
    c.iam.tag_instance_profile(InstanceProfileName=identity, Tags=_tags(c, new))


def _end_profile(c: Clients, identity: str, _: Values) -> None:
    for row in c.iam.get_instance_profile(InstanceProfileName=identity)["InstanceProfile"]["Roles"]:
        c.iam.remove_role_from_instance_profile(InstanceProfileName=identity, RoleName=row["RoleName"])
    c.iam.delete_instance_profile(InstanceProfileName=identity)


kind(
    "aws:iam/instanceProfile:InstanceProfile",
    Kind(
        _make_profile, _see_profile, _end_profile, _change_profile, named="name",
        replace=words("name namePrefix path"), computed=("arn", "uniqueId"),
    ),
)  # fmt: skip


# Parameters


def _put_parameter(c: Clients, i: Values) -> str:
    extra = {
        "description": "Description",
        "tier": "Tier",
        "keyId": "KeyId",
        "allowedPattern": "AllowedPattern",
    }
    c.ssm.put_parameter(
        Name=i["name"], Type=i["type"], Value=i.get("value", i.get("insecureValue")), Tags=_tags(c, i),
        **{theirs: i[ours] for ours, theirs in extra.items() if i.get(ours)},
    )  # fmt: skip
    return str(i["name"])


def _see_parameter(c: Clients, identity: str, old: Values) -> Values | None:
    answer = read_or_none(lambda: c.ssm.get_parameter(Name=identity, WithDecryption=True))
    if answer is None:
        return None
    row = answer["Parameter"]
    listed = c.ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=identity)["TagList"]
    return {
        "name": row["Name"], "type": row["Type"], "version": row["Version"], "arn": row["ARN"],
        "insecureValue" if "insecureValue" in old else "value": row["Value"],
        "tags": {tag["Key"]: tag["Value"] for tag in listed},
    }  # fmt: skip


def _change_parameter(c: Clients, identity: str, old: Values, new: Values) -> None:
    value = new.get("value", new.get("insecureValue"))
    if value != old.get("value", old.get("insecureValue")):
        tier = {"Tier": new["tier"]} if new.get("tier") else {}
        c.ssm.put_parameter(Name=identity, Type=new["type"], Value=value, Overwrite=True, **tier)
    if ending := sorted({*(old.get("tags") or {})} - {*c.tags(new)}):
        c.ssm.remove_tags_from_resource(ResourceType="Parameter", ResourceId=identity, TagKeys=ending)
    if tags := _tags(c, new):
        c.ssm.add_tags_to_resource(ResourceType="Parameter", ResourceId=identity, Tags=tags)


kind(
    "aws:ssm/parameter:Parameter",
    Kind(
        _put_parameter, _see_parameter, lambda c, identity, _: c.ssm.delete_parameter(Name=identity),
        _change_parameter, named="name", replace=words("name type"), computed=("arn", "version"), moving=("version",),
    ),
)  # fmt: skip
