"""What a simulation drew and cost, as far as the catalog and the cluster's file say.

Comes in: a `World` that has run. Goes out: a `Bill`; what is not known is left out and named, never taken for 0.
Called by: metrics.

Energy is that of GPUs alone: at their power limit while they are held, at what the catalog saw an idle one draw
otherwise. Dollars are that energy at the site's price with its PUE, and the hours of nodes of aws sites at their
offering's price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import catalog
from orchestrator.model.cluster import Pool, Site, SiteKind
from orchestrator.model.prices import quote

if TYPE_CHECKING:
    from orchestrator.simulate.world import World

HOUR_US = 3_600_000_000
KW = 1000
MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars and kWh; None where not even one pool's is known."""

    dollars: float | None
    kwh: float | None
    left_out: tuple[str, ...] = ()


def bill(world: World) -> Bill:
    """Over all pools."""
    left_out: list[str] = []
    kwh: list[float] = []
    dollars: list[float] = []
    for pool in world.cluster.pools:
        if not pool.nodes:
            continue
        site = world.cluster.site_of(pool)
        drawn = _kwh(world, pool, left_out)
        if drawn is not None:
            kwh.append(drawn)
        paid = _paid(world, pool, site, drawn, left_out)
        if paid is not None:
            dollars.append(paid)
    return Bill(sum(dollars) if dollars else None, sum(kwh) if kwh else None, tuple(left_out))


def _kwh(world: World, pool: Pool, left_out: list[str]) -> float | None:
    if pool.gpu is None:
        return None
    known = catalog.load().gpus.get(pool.gpu.model)
    watts = pool.gpu.max_watts or (known.max_watts if known is not None else 0)
    if not watts:
        left_out.append(f"kWh of pool {pool.name}: the catalog has no watts of {pool.gpu.model}")
        return None
    held = world.sampler.held_area.get(pool.name, 0) / 1000 / HOUR_US
    idle = world.sampler.pool_area.get(pool.name, 0) / 1000 / HOUR_US - held
    idle_watts = known.idle_watts if known is not None else 0
    if not idle_watts:
        left_out.append(
            f"kWh of idle GPUs of pool {pool.name}: the catalog has no figure of {pool.gpu.model}"
        )
    return (held * watts + max(idle, 0.0) * idle_watts) / KW


def _paid(world: World, pool: Pool, site: Site, kwh: float | None, left_out: list[str]) -> float | None:
    if site.kind is SiteKind.AWS:
        return _hired(world, pool, site, left_out)
    if not site.power.price_microusd_per_kwh or kwh is None:
        left_out.append(f"dollars of pool {pool.name}: its site {site.name} has no price_usd_per_kwh")
        return None
    return kwh * site.power.pue_milli / 1000 * site.power.price_microusd_per_kwh / MICRO


def _hired(world: World, pool: Pool, site: Site, left_out: list[str]) -> float | None:
    offering = pool.offerings[0] if pool.offerings else None
    now_us = world.settings.start_us
    price = (
        quote(catalog.load(), site, offering.types[0], offering.market, now_us)
        if offering is not None
        else None
    )
    if price is None:
        left_out.append(f"dollars of pool {pool.name}: no price is known")
        return None
    hours = len(pool.nodes) * world.book.last_us / HOUR_US
    return hours * price.microusd_per_hour / MICRO
