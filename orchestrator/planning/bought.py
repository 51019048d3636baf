"""What a site of kind aws costs besides its instances, by name: no price of these is known, and none is guessed.

Comes in: a spec. Goes out: sentences. Called by: figures.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.cluster import (
    ClusterSpec,
    Market,
    Nat,
    Pool,
    Site,
    SiteKind,
    Storage,
    StorageKind,
)

FREE_ENDPOINTS = ("s3", "dynamodb")  # gateway endpoints; all others are interfaces, paid by the hour and zone


def unpriced(spec: ClusterSpec) -> Iterator[str]:
    """A sentence for each kind of cost that the wanted cluster has on AWS and that is in no figure."""
    for site in spec.sites:
        if site.kind is SiteKind.AWS:
            yield from _network(site)
            yield from _nodes(site, [pool for pool in spec.pools if pool.site == site.name])
            yield from (_storage(site, one) for one in spec.storage if _is_made_on(one, site))
    if spec.controller.instance is not None:
        yield f"the controller's instance {spec.controller.instance.type}, and its disk"


def _network(site: Site) -> Iterator[str]:
    own = not site.vpc.id
    if own and site.vpc.nat is Nat.ONE:
        yield f"site {site.name}: a NAT gateway, by the hour and by what passes through it"
    if own and site.vpc.nat is Nat.PER_ZONE:
        yield f"site {site.name}: a NAT gateway in each zone, by the hour and by what passes through it"
    paid = [name for name in site.vpc.endpoints if name not in FREE_ENDPOINTS]
    if own and paid:
        yield f"site {site.name}: endpoints {', '.join(paid)}, by the hour and zone"
    yield f"site {site.name}: data that goes to other zones and to the internet"


def _nodes(site: Site, pools: list[Pool]) -> Iterator[str]:
    if pools:
        yield f"site {site.name}: the root disks of nodes (EBS)"
    if any(pool.public_address for pool in pools):
        yield f"site {site.name}: public addresses, by the hour"
    reserved = any(one.market is Market.CAPACITY_RESERVATION for pool in pools for one in pool.offerings)
    if reserved:
        yield f"site {site.name}: capacity reservations while no node runs in them"


def _is_made_on(one: Storage, site: Site) -> bool:
    return one.made and (not one.sites or site.name in one.sites)


def _storage(site: Site, one: Storage) -> str:
    what = "FSx for Lustre" if one.kind is StorageKind.FSX else "EFS"
    return f"site {site.name}: storage {one.name} ({what})"
