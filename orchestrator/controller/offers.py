"""What a pass over capacity is given beside State: offers with prices, the calendar, what stands all the time.

Comes in: the wanted cluster, the catalog, facts of stacks, reservations, the time. Goes out: `Offer`s in the order in
which pools try them, `Policy`, what is outdated. Called by: capacity, once for each pass, capacity_commands (what a
pool's nodes have at most).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from orchestrator.autoscale import Policy
from orchestrator.ledger.state import State
from orchestrator.model.calendar import month_of
from orchestrator.model.capacity import UNBOUNDED, Intent, Offer, OfferingKey, Reserved
from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import ClusterSpec, Market, Offering, Pool, Site, SiteKind
from orchestrator.model.stack_facts import StackFacts
from orchestrator.model.standing import pool_prices, price_of, shape_of

UNKNOWN = Reserved("", UNBOUNDED)


def offers_of(
    spec: ClusterSpec,
    catalog: Catalog,
    zones: Mapping[str, tuple[str, ...]],
    reserved: Mapping[str, Reserved],
    now_us: int,
) -> tuple[Offer, ...]:
    """All offerings of all bought pools: each pool's in its own order, types in order, then zones in order. What is
    reserved is offered in its own zone, for as many as `reserved` says by its id, and until its end."""
    found: list[Offer] = []
    for pool in spec.pools:
        site = spec.site_of(pool)
        if pool.size is not None and site.kind is SiteKind.AWS:
            for offering in pool.offerings:
                known = reserved.get(offering.reservation, UNKNOWN)
                where = (known.zone,) if known.zone else zones.get(site.name, ())
                found += (
                    replace(one, slots=known.slots, ends_us=_end(offering, known))
                    for one in _of_offering(pool, site, offering, catalog, where, now_us)
                )
    return tuple(found)


def _end(offering: Offering, known: Reserved) -> int:
    """Instances outlive a reservation, as any on demand; they don't outlive a block."""
    return known.ends_us if offering.market is Market.CAPACITY_BLOCK else 0


def _of_offering(
    pool: Pool, site: Site, offering: Offering, catalog: Catalog, zones: tuple[str, ...], now_us: int
) -> Iterator[Offer]:
    for name in offering.types:
        known = catalog.instances.get(name)
        price = price_of(catalog, site, name, offering, now_us)
        if known is None or price is None:
            continue  # without a price no budget could be kept; `plan` names it
        for zone in zones or site.zones:
            key = OfferingKey(pool.name, name, str(offering.market), zone, offering.reservation)
            yield Offer(key, site.name, price, shape_of(pool, known), offering.max_microusd_per_hour)


def zones_of(facts: Mapping[str, StackFacts]) -> dict[str, tuple[str, ...]]:
    """The zones in which each site's stack has a subnet."""
    return {name: tuple(sorted({one.zone for one in found.subnets})) for name, found in facts.items()}


def outdated(state: State, facts: Mapping[str, StackFacts]) -> frozenset[str]:
    """Intents whose nodes would not be bought like this any more. `facts`: of sites whose stack is as the file says;
    what others will be is not known yet."""
    return frozenset(
        fleet.intent.id
        for fleet in state.fleets.values()
        if fleet.intent.site in facts and _is_outdated(state, fleet.intent, facts[fleet.intent.site])
    )


def _is_outdated(state: State, intent: Intent, facts: StackFacts) -> bool:
    pool, key = state.pool(intent.pool), intent.offering
    if pool is None:
        return False  # given back with its pool
    named = any(
        key.type in one.types and (key.market, key.reservation) == (one.market, one.reservation)
        for one in pool.offerings
    )
    meaning = facts.meaning(key)
    return not named or meaning is None or bool(intent.meaning and meaning not in ("", intent.meaning))


def policy_of(
    spec: ClusterSpec, catalog: Catalog, blocked: Mapping[str, str], old: frozenset[str], now_us: int
) -> Policy:
    """The calendar month of the cluster's zone, what stands, what can't be used, what is outdated (`old`)."""
    month_us, ends_us = month_of(spec.timezone, now_us)
    standing = tuple(_standing(spec, catalog, now_us))
    return Policy(month_us, ends_us, standing, tuple(sorted(blocked.items())), outdated=old)


def _standing(spec: ClusterSpec, catalog: Catalog, now_us: int) -> Iterator[tuple[str, int]]:
    nodes = {pool.name: len(pool.nodes) for pool in spec.pools}
    for one in pool_prices(spec, catalog, now_us):
        if nodes[one.pool]:
            yield one.pool, one.microusd_per_hour * nodes[one.pool]
