"""What nodes cost as budgets count them: of any offering, and of pools that stand all the time.

Comes in: the catalog, the cluster, the time. Goes out: micro-dollars an hour, `PoolPrice`s. Called by: controller and
simulate (tell the ledger what standing nodes cost, offer others to the pass over capacity), ledger.spending (counts).
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.capacity import Shape
from orchestrator.model.catalog import Catalog, InstanceType
from orchestrator.model.cluster import ClusterSpec, Market, Offering, Pool, Site, SiteKind
from orchestrator.model.prices import quote

# What an operating system sees of an instance's memory: the hypervisor, the kernel and firmware keep the rest.
USABLE_MILLI = 930


@dataclass(frozen=True, slots=True)
class PoolPrice:
    """What each node of a pool that stands all the time costs, in micro-dollars an hour, and what it has."""

    pool: str
    microusd_per_hour: int
    shape: Shape


def pool_prices(spec: ClusterSpec, catalog: Catalog, now_us: int) -> tuple[PoolPrice, ...]:
    """Of each pool of listed nodes that are paid for by the hour; of others nobody knows a price."""
    found: list[PoolPrice] = []
    for pool in spec.pools:
        site = spec.site_of(pool)
        if pool.size is None and site.kind is SiteKind.AWS and pool.offerings:
            name = pool.offerings[0].types[0]
            price = price_of(catalog, site, name, pool.offerings[0], now_us)
            if price:
                found.append(PoolPrice(pool.name, price, shape_of(pool, catalog.instances.get(name))))
    return tuple(found)


def shape_of(pool: Pool, known: InstanceType | None) -> Shape:
    """What a node of the type has: what the pool says counts, else the catalog; 0 where neither says it."""
    gpus = pool.gpu.count if pool.gpu is not None else 0
    cores, memory = (known.vcpus, known.memory * USABLE_MILLI // 1000) if known is not None else (0, 0)
    return Shape(gpus, pool.cores or cores, pool.memory or memory)


def price_of(catalog: Catalog, site: Site, name: str, offering: Offering, now_us: int) -> int | None:
    """Micro-dollars an hour as budgets count them, by `model.prices`, which takes old ones dearer than they say. A spot
    price may rise to its bound while a node runs, without one to the price on demand, so that counts. None where
    nobody knows a price, or it is listed above the bound."""
    bound = offering.max_microusd_per_hour
    if offering.market is Market.CAPACITY_BLOCK:
        return bound  # paid beforehand
    if offering.market is Market.SPOT and bound:
        return bound
    market = Market.ON_DEMAND if offering.market is Market.SPOT else offering.market
    found = quote(catalog, site, name, market, now_us)
    if found is None:
        return bound or None
    return None if 0 < bound < found.listed else found.microusd_per_hour
