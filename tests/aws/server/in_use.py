"""What EC2 does not delete while it is used: subnets, security groups, networks.

Comes in: moto's delete calls. Goes out: moto's answer, or DependencyViolation. Called by: clients, after `install`.
"""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response
from moto.efs.models import efs_backends

from tests.aws.server.onto import put


def _refuse(kind: str, identity: str) -> None:
    raise EC2ClientError(
        "DependencyViolation", f"The {kind} '{identity}' has dependencies and cannot be deleted."
    )


def _subnet_used(self: EC2Response, subnet: str) -> bool:
    backend = self.ec2_backend
    instances = any(
        eni.subnet.id == subnet
        for instance in backend.all_instances()
        if instance.state != "terminated"
        for eni in instance.nics.values()
    )
    gateways = any(
        gateway.subnet_id == subnet and gateway.state != "deleted"
        for gateway in backend.nat_gateways.values()
    )
    mounts = efs_backends[self.current_account][self.region].mount_targets_by_id.values()
    return instances or gateways or any(mount.subnet_id == subnet for mount in mounts)


def _group_used(self: EC2Response, group: str) -> bool:
    """Interfaces of what runs use it, or rules of another group name it."""
    backend = self.ec2_backend
    worn = any(
        each.id == group
        for instance in backend.all_instances()
        if instance.state != "terminated"
        for eni in instance.nics.values()
        for each in eni.group_set
    )
    named = any(
        rule.source_group.get("GroupId") == group
        for groups in backend.groups.values()
        for other in groups.values()
        if other.id != group
        for rule in [*other.ingress_rules, *other.egress_rules]
    )
    return worn or named


def install() -> None:
    """Put the checks before moto's own methods."""
    motos_subnet, motos_group, motos_vpc = (
        EC2Response.delete_subnet, EC2Response.delete_security_group, EC2Response.delete_vpc
    )  # fmt: skip

    def delete_subnet(self: EC2Response) -> Any:
        if _subnet_used(self, self._get_param("SubnetId")):
            _refuse("subnet", self._get_param("SubnetId"))
        return motos_subnet(self)

    def delete_security_group(self: EC2Response) -> Any:
        identity = self._get_param("GroupId")
        if identity and _group_used(self, identity):
            _refuse("security group", identity)
        return motos_group(self)

    def delete_vpc(self: EC2Response) -> Any:
        identity = self._get_param("VpcId")
        subnets = (subnet for zone in self.ec2_backend.subnets.values() for subnet in zone.values())
        gateways = self.ec2_backend.internet_gateways.values()
        if any(subnet.vpc_id == identity for subnet in subnets) or any(
            gateway.vpc and gateway.vpc.id == identity for gateway in gateways
        ):
            _refuse("vpc", identity)
        return motos_vpc(self)

    put(
        EC2Response,
        delete_subnet=delete_subnet,
        delete_security_group=delete_security_group,
        delete_vpc=delete_vpc,
    )
