"""The job network of bought nodes: which interfaces an instance type gets, and which placement group.

Comes in: what the catalog says of a type, what the file says of a pool. Goes out: interfaces, and placement groups as
a component. Called by: nodes, program; `live` by the first function, so that it asks EC2 for the same shape.

The layout is AWS's basic one for types with several network cards (EC2 user guide, "Maximize network bandwidth on
Amazon EC2 instances with multiple network cards", read on 2026-11-30): card 0, device 0 has a plain interface, since
one for EFA alone can't be the first; an `efa-only` one is device 1 of card 0, if that card takes EFA, and device 0 of
each further card. An `efa-only` interface has no address, so a node takes one address of its subnet, whatever it has of
cards. No layout was ever launched on EC2 by this code.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2

from orchestrator.model.catalog import InstanceType
from orchestrator.model.cluster import FabricKind, Market, Offering, PlacementGroup, Pool
from orchestrator.model.errors import InputError
from orchestrator.provision.aws.inputs import RESERVED
from orchestrator.provision.aws.marks import Marks

PLAIN, EFA, EFA_ONLY = "interface", "efa", "efa-only"


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface of an instance: on which card, as which device of that card, of which kind."""

    card: int
    device: int
    kind: str


def interfaces(kind: InstanceType, efa: bool) -> tuple[Interface, ...]:
    """The interfaces of one instance. InputError if EFA is wanted of a type that has none."""
    if not efa:
        return (Interface(0, 0, PLAIN),)
    if not kind.efa:
        raise InputError(
            "aws.no-efa",
            f"instance type '{kind.name}' has no EFA",
            "leave `fabric: {kind: efa}` away, or name a larger type",
            kind.name,
        )
    if kind.cards == 1:
        return (Interface(0, 0, EFA),)
    further = (Interface(card, 1 if card == 0 else 0, EFA_ONLY) for card in kind.efa_cards())
    return (Interface(0, 0, PLAIN), *further)


def wants_efa(pool: Pool) -> bool:
    """Whether a pool's nodes talk over EFA."""
    return pool.fabric.kind == FabricKind.EFA


def wants_placement(pool: Pool, offering: Offering) -> bool:
    """Whether what is bought by that offering starts in a cluster placement group.

    Reserved capacity stands where it stands: a group beside it leaves instances out of it, so it needs to be asked for;
    beside a capacity block EC2 refuses it.
    """
    if pool.fabric.placement == PlacementGroup.AUTO:
        return wants_efa(pool) and offering.market not in RESERVED
    return pool.fabric.placement == PlacementGroup.CLUSTER and offering.market != Market.CAPACITY_BLOCK


def pool_placement(pool: Pool) -> bool:
    """Whether any offering of the pool needs a placement group."""
    return any(wants_placement(pool, offering) for offering in pool.offerings)


@dataclass(frozen=True, slots=True)
class FabricArgs:
    """`pools` pairs each pool that wants placement groups with the zones in which its nodes may stand."""

    marks: Marks
    pools: tuple[tuple[str, tuple[str, ...]], ...]


class Fabric(pulumi.ComponentResource):
    """Placement groups, one a pool and zone: a cluster group lives in the zone of its first instance."""

    def __init__(self, name: str, args: FabricArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangline:aws:Fabric", name, None, opts)
        self.groups: dict[tuple[str, str], pulumi.Output[str]] = {}
        for pool, zones in args.pools:
            for zone in zones:
                called = f"placement-{pool}-{zone}"
                self.groups[pool, zone] = ec2.PlacementGroup(
                    called,
                    name=args.marks.name(pool, zone),
                    strategy="cluster",
                    tags=args.marks.tags(called, pool=pool),
                    opts=pulumi.ResourceOptions(parent=self),
                ).name
        self.register_outputs({f"{pool}/{zone}": group for (pool, zone), group in self.groups.items()})
