"""The digest of what the stack of an aws site follows from: the part of the file that Pulumi makes things of.

Comes in: a spec, a site. Goes out: a digest. Called by: provision.aws.program (writes it into the facts), stacks (a
plan knows whether the stack was brought to this file), controller (launches only by a stack that fits).

A change of queues, quotas, sizes or policies changes no digest: no stack has to follow it.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.cluster import ClusterSpec, Offering, Pool, PoolSize, Site, Stack, Update
from orchestrator.planning.digest import digest_of


def stack_digest(spec: ClusterSpec, site: str) -> str:
    """Of the site, its pools, the storages on it, and the controller where its nodes call or live there."""
    pools = tuple(_pool(pool) for pool in spec.pools if pool.site == site)
    storages = tuple(one for one in spec.storage if not one.sites or site in one.sites)
    instance = spec.controller.instance
    here = instance if instance is not None and instance.site == site else None
    return digest_of((spec.name, spec.controller.address, here, _site(spec.site(site)), pools, storages))


def _site(site: Site) -> Site:
    return replace(site, prices="", negotiated=(), stack=Stack())


def _pool(pool: Pool) -> Pool:
    """Without what the scheduler and the market alone go by; templates follow from types, markets and reservations."""
    offerings = tuple(Offering(one.types, one.market, 0, one.reservation) for one in pool.offerings)
    size = PoolSize() if pool.size is not None else None
    nodes = tuple(sorted(pool.nodes))  # their order says which are taken first, and makes nothing else
    return replace(
        pool, nodes=nodes, labels=(), update=Update(), size=size, offerings=offerings, cores=0, memory=0
    )
