"""The controller on an instance of its own, with the disk that has the ledger.

Comes in: `ControllerArgs`. Goes out: an instance id. Called by: program.

The disk is a resource of its own, protected and kept: the instance may go, the ledger may not. A new image and new
user-data change nothing on a controller that runs; what it is made of is brought up to date inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import ebs, ec2, iam, vpc

from orchestrator.model.cluster import ControllerInstance
from orchestrator.provision.aws import rights, security
from orchestrator.provision.aws.inputs import SiteInputs, words_of
from orchestrator.provision.aws.marks import Marks

GIB = 2**30
PORT = 7443
DATA = "controller-data"
ROOT_GIB = 20
DEFAULT_DATA_GIB = 50  # wire: `controller.instance.volume`
DEVICE = "/dev/sdf"  # AWS's first recommended name for a data disk; the kernel calls it as it likes


@dataclass(frozen=True, slots=True)
class ControllerArgs:
    """`cidr` is the range of a network that Gangline made, or empty: then only its nodes reach the controller."""

    marks: Marks
    inputs: SiteInputs
    instance: ControllerInstance
    vpc_id: pulumi.Input[str]
    cidr: str
    subnets: Mapping[str, pulumi.Input[str]]
    nodes_group: pulumi.Input[str]
    nodes_role: pulumi.Input[str]
    after: tuple[pulumi.Resource, ...] = ()


class ControllerHost(pulumi.ComponentResource):
    """Instance, disk, security group."""

    def __init__(self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangline:aws:ControllerHost", name, None, opts)
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        zone = args.inputs.home("controller")
        instance = self._instance(zone, self._group())
        volume = self._volume(zone)
        ec2.VolumeAttachment(
            DATA,
            device_name=DEVICE,
            instance_id=instance.id,
            volume_id=volume.id,
            stop_instance_before_detaching=True,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        self.instance_id = instance.id
        self.register_outputs({"instance": instance.id, "address": instance.private_ip, "volume": volume.id})

    def _group(self) -> pulumi.Output[str]:
        marks = self._args.marks
        group = ec2.SecurityGroup(
            "controller",
            name=marks.name("controller"),
            description="The cluster's controller",  # never changed: AWS replaces a group for another description
            vpc_id=self._args.vpc_id,
            tags=marks.tags("controller"),
            opts=self._child,
        )
        self._let_in("controller-from-nodes", group.id, group=self._args.nodes_group)
        if self._args.cidr:
            self._let_in("controller-from-vpc", group.id, cidr=self._args.cidr)
        vpc.SecurityGroupEgressRule(
            "controller-out",
            security_group_id=group.id,
            cidr_ipv4="0.0.0.0/0",
            ip_protocol=security.EVERY_PROTOCOL,
            tags=marks.tags("controller-out"),
            opts=self._child,
        )
        return group.id

    def _let_in(
        self, name: str, to: pulumi.Input[str], group: pulumi.Input[str] | None = None, cidr: str = ""
    ) -> None:
        vpc.SecurityGroupIngressRule(
            name,
            security_group_id=to,
            referenced_security_group_id=group,
            cidr_ipv4=cidr or None,
            ip_protocol="tcp",
            from_port=PORT,
            to_port=PORT,
            tags=self._args.marks.tags(name),
            opts=self._child,
        )

    def _instance(self, zone: str, group: pulumi.Output[str]) -> ec2.Instance:
        args = self._args
        pin = args.inputs.image(words_of(args.inputs.site, None))
        runs = args.inputs.facts is not None and bool(args.inputs.facts.controller)
        return ec2.Instance(
            "controller",
            ami=pin.image,
            instance_type=args.instance.type,
            subnet_id=args.subnets[zone],
            vpc_security_group_ids=[group],
            root_block_device=ec2.InstanceRootBlockDeviceArgs(
                encrypted=True,
                kms_key_id=args.inputs.site.kms_key or None,
                volume_size=ROOT_GIB,
                volume_type="gp3",
                tags=args.marks.tags("controller"),
            ),
            metadata_options=ec2.InstanceMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=security.HOPS
            ),
            user_data=args.inputs.controller_boot or None,
            iam_instance_profile=self._profile(),
            tags=args.marks.tags("controller"),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(args.after),
                # The address is in DNS, the disk can be in one instance only.
                delete_before_replace=True,
                ignore_changes=["ami", "userData", "rootBlockDevice"] if runs else None,
            ),
        )

    def _profile(self) -> pulumi.Output[str]:
        """The identity by which the controller launches and ends its elastic nodes, and nothing else."""
        args, name = self._args, self._args.marks.name("controller", most=security.IAM_ROLE_NAME)
        role = iam.Role(
            "controller",
            name=name,
            assume_role_policy=security.assumed_by_ec2(args.inputs.partition),
            permissions_boundary=args.inputs.site.permissions_boundary or None,
            tags=args.marks.tags("controller"),
            opts=self._child,
        )
        where = rights.Where(args.inputs.partition, args.inputs.site.region, args.inputs.account)
        iam.RolePolicy(
            "controller",
            name="gangline",
            role=role.name,
            policy=pulumi.Output.from_input(args.nodes_role).apply(
                lambda arn: rights.of_controller(
                    where, args.marks.cluster, args.marks.uid, arn, args.inputs.site.kms_key
                )
            ),
            opts=self._child,
        )
        return iam.InstanceProfile(
            "controller", name=name, role=role.name, tags=args.marks.tags("controller"), opts=self._child
        ).name

    def _volume(self, zone: str) -> ebs.Volume:
        args, keep = self._args, DATA not in self._args.inputs.released
        return ebs.Volume(
            DATA,
            availability_zone=zone,
            size=-(-args.instance.volume // GIB) or DEFAULT_DATA_GIB,
            type="gp3",
            encrypted=True,
            kms_key_id=args.inputs.site.kms_key or None,
            tags=args.marks.tags(DATA),
            opts=pulumi.ResourceOptions(parent=self, protect=keep, retain_on_delete=keep),
        )
