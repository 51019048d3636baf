"""Types of security: groups, with rules inside them, and rules as resources of their own.

Comes in: inputs in Pulumi's words. Goes out: calls of EC2. Called by: server, by way of `kinds.KINDS`.
"""

from __future__ import annotations

from typing import Any

from tests.aws.provider.kinds import Clients, Kind, Values, kind, read_or_none, words
from tests.aws.provider.network import first, tag_spec, tags_of


def _make_group(c: Clients, i: Values) -> str:
    made = c.ec2.create_security_group(
        GroupName=i["name"], Description=i.get("description", "Managed by Pulumi"),
        TagSpecifications=tag_spec(c, i, "security-group"), **({"VpcId": i["vpcId"]} if "vpcId" in i else {}),
    )  # fmt: skip
    identity: str = made["GroupId"]
    # As the real provider does: EC2 lets a new group send anywhere, a Pulumi group only where a rule says so.
    c.ec2.revoke_security_group_egress(
        GroupId=identity, IpPermissions=[_permission({"cidrIpv4": "0.0.0.0/0"})]
    )
    _change_group(c, identity, {}, i)
    return identity


def _permission(rule: Values) -> dict[str, Any]:
    permission: dict[str, Any] = {"IpProtocol": str(rule.get("ipProtocol", rule.get("protocol", "-1")))}
    if permission["IpProtocol"] != "-1":
        permission |= {"FromPort": int(rule["fromPort"]), "ToPort": int(rule["toPort"])}
    words_ = {"Description": rule["description"]} if rule.get("description") else {}
    blocks = [*rule.get("cidrBlocks", []), *([rule["cidrIpv4"]] if rule.get("cidrIpv4") else [])]
    groups = [*rule.get("securityGroups", []), *([rule["referenced"]] if rule.get("referenced") else [])]
    if blocks:
        permission["IpRanges"] = [{"CidrIp": block} | words_ for block in blocks]
    if groups:
        permission["UserIdGroupPairs"] = [{"GroupId": group} | words_ for group in groups]
    return permission


def _change_group(c: Clients, identity: str, old: Values, new: Values) -> None:
    """Rules inside the group's own inputs."""
    calls = {
        "ingress": (c.ec2.revoke_security_group_ingress, c.ec2.authorize_security_group_ingress),
        "egress": (c.ec2.revoke_security_group_egress, c.ec2.authorize_security_group_egress),
    }
    for way, (revoke, allow) in calls.items():
        before, after = ([_inline(rule, identity) for rule in part.get(way) or []] for part in (old, new))
        if ending := [rule for rule in before if rule not in after]:
            revoke(GroupId=identity, IpPermissions=ending)
        if coming := [rule for rule in after if rule not in before]:
            allow(GroupId=identity, IpPermissions=coming)


def _inline(rule: Values, identity: str) -> dict[str, Any]:
    return _permission(rule | ({"referenced": identity} if rule.get("self") else {}))


def _see_group(c: Clients, identity: str, _: Values) -> Values | None:
    row = first(read_or_none(lambda: c.ec2.describe_security_groups(GroupIds=[identity])), "SecurityGroups")
    return row and {
        "name": row["GroupName"], "description": row["Description"], "vpcId": row["VpcId"], "tags": tags_of(row),
        "ownerId": row["OwnerId"], "arn": f"arn:aws:ec2:{c.region}:{c.account()}:security-group/{identity}",
    }  # fmt: skip


kind(
    "aws:ec2/securityGroup:SecurityGroup",
    Kind(
        _make_group, _see_group, lambda c, identity, _: c.ec2.delete_security_group(GroupId=identity), _change_group,
        tagged=True, named="name", replace=words("name description vpcId"), computed=("arn", "ownerId"),
    ),
)  # fmt: skip


def _rule(i: Values) -> dict[str, Any]:
    return _permission(i | {"referenced": i.get("referencedSecurityGroupId")})


def _rule_kind(way: str) -> Kind:
    """Rules of one way; they are marked in the call that makes them, and have ids of their own (`sgr-`)."""

    def make(c: Clients, i: Values) -> str:
        allow = getattr(c.ec2, f"authorize_security_group_{way}")
        made = allow(
            GroupId=i["securityGroupId"], IpPermissions=[_rule(i)],
            TagSpecifications=tag_spec(c, i, "security-group-rule"),
        )  # fmt: skip
        return str(made["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    def see(c: Clients, identity: str, old: Values) -> Values | None:
        ask = read_or_none(lambda: c.ec2.describe_security_group_rules(SecurityGroupRuleIds=[identity]))
        row = first(ask, "SecurityGroupRules")
        if row is None:
            return None
        ports = (
            {"fromPort": row.get("FromPort"), "toPort": row.get("ToPort")}
            if row["IpProtocol"] != "-1"
            else {}
        )
        return ports | {
            "securityGroupId": row["GroupId"], "ipProtocol": row["IpProtocol"], "cidrIpv4": row.get("CidrIpv4"),
            "referencedSecurityGroupId": row.get("ReferencedGroupInfo", {}).get("GroupId"),
            "description": row.get("Description"), "securityGroupRuleId": identity,
            "tags": tags_of(row),
            "arn": f"arn:aws:ec2:{c.region}:{c.account()}:security-group-rule/{identity}",
        }  # fmt: skip

    def end(c: Clients, identity: str, outputs: Values) -> None:
        revoke = getattr(c.ec2, f"revoke_security_group_{way}")
        revoke(GroupId=outputs["securityGroupId"], SecurityGroupRuleIds=[identity])

    fixed = "securityGroupId ipProtocol cidrIpv4 referencedSecurityGroupId fromPort toPort description"
    return Kind(make, see, end, tagged=True, replace=words(fixed), computed=("arn", "securityGroupRuleId"))


kind("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", _rule_kind("ingress"))
kind("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", _rule_kind("egress"))
