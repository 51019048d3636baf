"""What nodes of an aws site may reach and may do: one security group, one role without any rights.

Comes in: `SecurityArgs`. Goes out: the group's id and the instance profile's name. Called by: program; the constants
also by nodes and controller_host, so that every instance is closed in the same way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2, iam, vpc

from orchestrator.provision.aws.marks import Marks

EVERY_PROTOCOL = "-1"
IAM_ROLE_NAME = 64  # characters, the most that IAM takes
HOPS = 1  # an answer of the metadata service dies behind the first hop: containers with their own network get none


@dataclass(frozen=True, slots=True)
class SecurityArgs:
    """`boundary` is the ARN of a permissions boundary, or empty."""

    marks: Marks
    vpc_id: pulumi.Input[str]
    partition: str
    boundary: str = ""


class Security(pulumi.ComponentResource):
    """The group of all nodes and of what they mount, and the identity that they have in the account."""

    def __init__(self, name: str, args: SecurityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangline:aws:Security", name, None, opts)
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        self.group = self._group()
        self.role_arn, self.profile = self._profile()
        self.register_outputs({"group": self.group, "profile": self.profile})

    def _group(self) -> pulumi.Output[str]:
        marks = self._args.marks
        group = ec2.SecurityGroup(
            "nodes",
            name=marks.name("nodes"),
            description="Nodes of the cluster",  # never changed: AWS replaces a group for another description
            vpc_id=self._args.vpc_id,
            tags=marks.tags("nodes"),
            opts=self._child,
        )
        self._rules(group.id)
        return group.id

    def _rules(self, group: pulumi.Output[str]) -> None:
        """EFA wants a rule that names the group itself in each direction: one for all addresses does not do for it."""
        tags = self._args.marks.tags
        vpc.SecurityGroupIngressRule(
            "nodes-from-nodes",
            security_group_id=group,
            referenced_security_group_id=group,
            ip_protocol=EVERY_PROTOCOL,
            tags=tags("nodes-from-nodes"),
            opts=self._child,
        )
        vpc.SecurityGroupEgressRule(
            "nodes-to-nodes",
            security_group_id=group,
            referenced_security_group_id=group,
            ip_protocol=EVERY_PROTOCOL,
            tags=tags("nodes-to-nodes"),
            opts=self._child,
        )
        vpc.SecurityGroupEgressRule(
            "nodes-out",
            security_group_id=group,
            cidr_ipv4="0.0.0.0/0",
            ip_protocol=EVERY_PROTOCOL,
            tags=tags("nodes-out"),
            opts=self._child,
        )

    def _profile(self) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """An identity without a policy: a node proves itself by its signed document and asks AWS for nothing."""
        args, name = self._args, self._args.marks.name("nodes", most=IAM_ROLE_NAME)
        role = iam.Role(
            "nodes",
            name=name,
            assume_role_policy=assumed_by_ec2(args.partition),
            permissions_boundary=args.boundary or None,
            tags=args.marks.tags("nodes"),
            opts=self._child,
        )
        profile = iam.InstanceProfile(
            "nodes", name=name, role=role.name, tags=args.marks.tags("nodes"), opts=self._child
        )
        return role.arn, profile.name


def assumed_by_ec2(partition: str) -> str:
    """The policy document that lets EC2 give a role to its instances."""
    service = "ec2.amazonaws.com.cn" if partition == "aws-cn" else "ec2.amazonaws.com"
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, sort_keys=True)
