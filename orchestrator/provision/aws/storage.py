"""File systems of an aws site: FSx for Lustre and EFS, those that Gangline makes and those that people keep.

Comes in: `StorageArgs`. Goes out: file systems, and how a node mounts them. Called by: program.

What is made is protected, and kept when it leaves the stack, unless its name was released: no edit of the file and no
`destroy` deletes data by the way. All stand in the nodes' security group: a Lustre server calls its clients too, so
that rules are needed both ways, and the group has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import efs, fsx

from orchestrator.model.cluster import MADE_STORAGE, Storage, StorageKind
from orchestrator.model.stack_facts import StorageFact
from orchestrator.planning.stacks import aws_sites
from orchestrator.provision.aws.inputs import SiteInputs
from orchestrator.provision.aws.marks import Marks

GIB = 2**30
DEFAULT_FSX_GIB = 1200  # the smallest of PERSISTENT_2
DEFAULT_THROUGHPUT = 125  # MB/s per TiB, the least of PERSISTENT_2
# What AWS's guides to EFS and to FSx for Lustre tell clients to mount with.
EFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev"
FSX_OPTIONS = "relatime,flock,_netdev"


@dataclass(frozen=True, slots=True)
class StorageArgs:
    """`subnets` are private ones, by zone."""

    marks: Marks
    inputs: SiteInputs
    subnets: Mapping[str, pulumi.Input[str]]
    security_group: pulumi.Input[str]


class Storages(pulumi.ComponentResource):
    """All storages of the site."""

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangline:aws:Storage", name, None, opts)
        self._args = args
        self.facts: list[pulumi.Output[StorageFact]] = [
            self._declare(storage) for storage in storages_of(args.inputs)
        ]
        self.register_outputs({"storages": len(self.facts)})

    def _declare(self, storage: Storage) -> pulumi.Output[StorageFact]:
        if storage.source:
            return pulumi.Output.from_input(kept_fact(storage, self._args.inputs))
        return self._lustre(storage) if storage.kind == StorageKind.FSX else self._efs(storage)

    def _kept(self, storage: Storage) -> pulumi.ResourceOptions:
        """Neither deleted nor replaced unless its name was released; a replacement is a deletion to the engine."""
        keep = storage.name not in self._args.inputs.released
        return pulumi.ResourceOptions(parent=self, protect=keep, retain_on_delete=keep)

    def _lustre(self, storage: Storage) -> pulumi.Output[StorageFact]:
        args, name = self._args, storage.name
        zone = args.inputs.home(f"storage/{name}")
        made = fsx.LustreFileSystem(
            name,
            deployment_type="PERSISTENT_2",
            storage_type="SSD",
            storage_capacity=-(-storage.size // GIB) or DEFAULT_FSX_GIB,
            per_unit_storage_throughput=storage.throughput or DEFAULT_THROUGHPUT,
            subnet_ids=args.subnets[zone],
            security_group_ids=[args.security_group],
            kms_key_id=args.inputs.site.kms_key or None,
            copy_tags_to_backups=True,
            tags=args.marks.tags(name),
            opts=self._kept(storage),
        )
        region, partition = args.inputs.site.region, args.inputs.partition
        return pulumi.Output.all(made.id, made.mount_name).apply(
            lambda found: StorageFact(
                name, found[0], lustre_source(found[0], region, partition, found[1]), FSX_OPTIONS
            )
        )

    def _efs(self, storage: Storage) -> pulumi.Output[StorageFact]:
        args, name = self._args, storage.name
        made = efs.FileSystem(
            name,
            encrypted=True,
            kms_key_id=args.inputs.site.kms_key or None,
            throughput_mode="provisioned" if storage.throughput else "elastic",
            provisioned_throughput_in_mibps=float(storage.throughput) if storage.throughput else None,
            tags=args.marks.tags(name),
            opts=self._kept(storage),
        )
        for zone in args.inputs.zones:
            efs.MountTarget(
                f"{name}-{zone}",
                file_system_id=made.id,
                subnet_id=args.subnets[zone],
                security_groups=[args.security_group],
                opts=pulumi.ResourceOptions(parent=self),
            )
        region, partition = args.inputs.site.region, args.inputs.partition
        return made.id.apply(
            lambda found: StorageFact(name, found, efs_source(found, region, partition), EFS_OPTIONS)
        )


def storages_of(inputs: SiteInputs) -> tuple[Storage, ...]:
    """The spec's storages of kinds that AWS has, as far as they are mounted on this site."""
    return tuple(
        storage
        for storage in inputs.spec.storage
        if storage.kind in MADE_STORAGE
        and (inputs.site_name in storage.sites or (not storage.sites and _only_aws(inputs)))
    )


def _only_aws(inputs: SiteInputs) -> bool:
    """A storage that names no site is made where there is only one site of kind aws: it can't stand in two."""
    return aws_sites(inputs.spec) == (inputs.site_name,)


def kept_fact(storage: Storage, inputs: SiteInputs) -> StorageFact:
    """How a file system that people keep is mounted; nothing is asked of AWS about it."""
    region, partition = inputs.site.region, inputs.partition
    if storage.kind == StorageKind.EFS:
        return StorageFact(
            storage.name, storage.source, efs_source(storage.source, region, partition), EFS_OPTIONS
        )
    number, _, mount = storage.source.partition("/")
    return StorageFact(storage.name, number, lustre_source(number, region, partition, mount), FSX_OPTIONS)


def efs_source(number: str, region: str, partition: str) -> str:
    """What mount(8) takes for an EFS; an address that is one already stays."""
    return number if ":" in number else f"{number}.efs.{region}.{_domain(partition)}:/"


def lustre_source(number: str, region: str, partition: str, mount: str) -> str:
    """What mount(8) takes for an FSx for Lustre; `mount` empty: `fsx`, as those that are not persistent are called."""
    return number if "@" in number else f"{number}.fsx.{region}.{_domain(partition)}@tcp:/{mount or 'fsx'}"


def _domain(partition: str) -> str:
    return "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
