"""What a cluster costs and draws before and after a plan, and which limit is nearest.

Comes in: the specs, the catalog, the work that runs. Goes out: `Figures`. Called by: plan.

Watts are of GPUs: `floor` when all idle, `expected` with those that work holds now at their limit and the others idle,
`ceiling` with all at their power limit. Dollars are of that power at the site's price and PUE, and of the instances
that are bought (`model.prices`): fixed ones always, elastic ones between their least and their most. What nobody knows
is not guessed: it is named in `uncounted`; what is taken dearer than its source says, in `assumed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.model.catalog import Catalog
from orchestrator.model.change import Figures, Span
from orchestrator.model.cluster import Budget, ClusterSpec, Market, Offering, Pool, Scope, Site, SiteKind
from orchestrator.model.prices import quote
from orchestrator.planning.bought import unpriced
from orchestrator.planning.power import loads
from orchestrator.planning.world import Workload

LONGEST_MONTH_H = 31 * 24  # a monthly budget as a rate that is surely kept
NOTHING = Span(0, 0, 0)
WATTS, MONEY = "watts", "microusd_per_hour"


@dataclass(frozen=True, slots=True)
class _Pool:
    """The figures of one pool."""

    pool: Pool
    site: Site
    watts: Span
    cost: Span


@dataclass(frozen=True, slots=True)
class _Limit:
    """One limit and what stands against it."""

    name: str
    limit: int
    used: int
    unit: str

    def share_left(self) -> Fraction:
        """Of the limit."""
        return Fraction(self.limit - self.used, self.limit)


def figures(
    before: ClusterSpec | None, after: ClusterSpec, catalog: Catalog, workload: Workload, now_us: int
) -> Figures:
    """Both states, at the prices that hold now. The limits are those of the wanted file, with everything at its
    ceiling."""
    held = _held_milli_gpus(workload)
    past, count = _Counter(catalog, held, now_us), _Counter(catalog, held, now_us)
    old = [past.pool(before, pool) for pool in before.pools] if before is not None else []
    new = [count.pool(after, pool) for pool in after.pools]
    nearest = min(
        _limits(after, new, catalog), key=lambda limit: (limit.share_left(), limit.name), default=None
    )
    return Figures(
        cost_now=_sum(one.cost for one in old),
        cost_then=_sum(one.cost for one in new),
        watts_now=_sum(one.watts for one in old),
        watts_then=_sum(one.watts for one in new),
        binds=nearest.name if nearest is not None else "",
        headroom=nearest.limit - nearest.used if nearest is not None else 0,
        headroom_unit=nearest.unit if nearest is not None else "",
        uncounted=tuple(dict.fromkeys((*count.uncounted, *unpriced(after)))),
        assumed=tuple(count.assumed),
    )


def _sum(spans: Iterator[Span]) -> Span:
    floor = expected = ceiling = 0
    for span in spans:
        floor, expected, ceiling = floor + span.floor, expected + span.expected, ceiling + span.ceiling
    return Span(floor, expected, ceiling)


# --- one pool --------------------------------------------------------------------------------------------------------


class _Counter:
    """Counts pools, and keeps what it could not count and what it assumed, each once."""

    def __init__(self, catalog: Catalog, held: dict[str, int], now_us: int) -> None:
        self.uncounted: dict[str, None] = {}
        self.assumed: dict[str, None] = {}
        self._catalog = catalog
        self._now_us = now_us
        self._held = held

    def pool(self, spec: ClusterSpec, pool: Pool) -> _Pool:
        """The figures of one pool of a spec."""
        site = spec.site_of(pool)
        if site.kind is SiteKind.AWS:
            return _Pool(pool, site, NOTHING, self._bought(site, pool))
        watts = self._watts(pool)
        return _Pool(pool, site, watts, self._power_cost(site, watts))

    def _watts(self, pool: Pool) -> Span:
        if pool.nodes:
            self._miss("power of hosts besides their GPUs: it is known once it is measured")
        each = node_watts(pool, self._catalog)
        if each is None:
            self._miss(f"power of pool {pool.name}: its GPU model is not in the catalog")
        idle = self._idle_watts(pool) if each else 0
        floor, ceiling = idle * len(pool.nodes), (each or 0) * len(pool.nodes)
        return Span(floor, floor + int((ceiling - floor) * self._busy(pool)), ceiling)

    def _idle_watts(self, pool: Pool) -> int:
        """The GPUs of one node when nothing runs on them; 0 where nobody knows it."""
        gpu = pool.gpu
        known = self._catalog.gpus.get(gpu.model) if gpu is not None else None
        if gpu is None or known is None or not known.idle_watts:
            self._miss(f"power of idle GPUs of pool {pool.name}: the catalog does not have it")
            return 0
        return min(known.idle_watts, gpu.max_watts or known.max_watts) * gpu.count

    def _busy(self, pool: Pool) -> Fraction:
        """The share of the pool's GPUs that work holds."""
        total = 1000 * len(pool.nodes) * (pool.gpu.count if pool.gpu is not None else 0)
        held = sum(self._held.get(name, 0) for name in pool.nodes)
        return min(Fraction(1), Fraction(held, total)) if total else Fraction(0)

    def _power_cost(self, site: Site, watts: Span) -> Span:
        price = site.power.price_microusd_per_kwh
        if not price and watts.ceiling:
            self._miss(f"power on site {site.name}: it has no price_usd_per_kwh")
        factor = Fraction(price * site.power.pue_milli, 1_000_000)  # per watt and hour
        return Span(*(int(part * factor) for part in (watts.floor, watts.expected, watts.ceiling)))

    def _bought(self, site: Site, pool: Pool) -> Span:
        """`expected` is the floor: how many more will be bought, work decides. Fixed nodes are always there."""
        low, high = (pool.size.min, pool.size.max) if pool.size is not None else (len(pool.nodes),) * 2
        prices = [price for offering in pool.offerings for price in self._prices(site, pool, offering)]
        if not prices:
            return NOTHING
        return Span(low * min(prices), low * prices[0], high * max(prices))

    def _prices(self, site: Site, pool: Pool, offering: Offering) -> Iterator[int]:
        """Micro-dollars an hour for each type of an offering, at most."""
        cap = offering.max_microusd_per_hour
        for name in offering.types:
            found = quote(self._catalog, site, name, offering.market, self._now_us)
            if found is None and offering.market is Market.CAPACITY_BLOCK:
                self._miss(f"pool {pool.name}: capacity blocks are paid beforehand")
            elif found is None and not cap:
                self._miss(f"pool {pool.name}: the catalog has no price of {name} in {site.region}")
            elif found is None or 0 < cap < found.microusd_per_hour:
                yield cap
            else:
                self.assumed.update(dict.fromkeys(found.assumed))
                yield found.microusd_per_hour

    def _miss(self, what: str) -> None:
        self.uncounted[what] = None


def _held_milli_gpus(workload: Workload) -> dict[str, int]:
    """Milli-GPUs that jobs hold on each node, spread evenly over their nodes."""
    held: dict[str, int] = {}
    for job in workload.running:
        each = 1000 * job.gpus // max(1, len(job.nodes))
        for name in job.nodes:
            held[name] = held.get(name, 0) + each
    return held


def node_watts(pool: Pool, catalog: Catalog) -> int | None:
    """The GPUs of one node at their limit; None where nobody knows it."""
    if pool.gpu is None:
        return 0
    known = catalog.gpus.get(pool.gpu.model)
    each = pool.gpu.max_watts or (known.max_watts if known is not None else 0)
    return each * pool.gpu.count if each else None


# --- limits ----------------------------------------------------------------------------------------------------------


def _limits(spec: ClusterSpec, pools: list[_Pool], catalog: Catalog) -> Iterator[_Limit]:
    yield from _power_limits(spec, catalog)
    for budget in spec.budgets:
        yield from _money_limits(budget, pools)


def _power_limits(spec: ClusterSpec, catalog: Catalog) -> Iterator[_Limit]:
    """Each domain's own limit, and each window of a budget on it."""
    for site in spec.sites:
        watts = {
            name: node_watts(pool, catalog) or 0
            for pool in spec.pools
            if pool.site == site.name
            for name in pool.nodes
        }
        load = loads(site, watts) if site.power.domains else {}
        for domain in site.power.domains:
            if domain.usable_watts():
                name = f"sites[{site.name}].power.domains[{domain.name}]"
                yield _Limit(name, domain.usable_watts(), load[domain.name], WATTS)
        for budget in spec.budgets:
            lowest = min((window.limit_watts for window in budget.windows), default=0)
            if budget.domain in load and lowest:
                yield _Limit(f"budgets[{budget.name}]", lowest, load[budget.domain], WATTS)


def _money_limits(budget: Budget, pools: list[_Pool]) -> Iterator[_Limit]:
    """Of budgets on a place; what a queue spends, work decides."""
    if budget.scope.queue:
        return
    used = sum(one.cost.ceiling for one in pools if _within(one, budget.scope))
    month = budget.microusd_per_month // LONGEST_MONTH_H
    for field, limit in (("usd_per_hour", budget.microusd_per_hour), ("usd_per_month", month)):
        if limit:
            yield _Limit(f"budgets[{budget.name}].{field}", limit, used, MONEY)


def _within(one: _Pool, scope: Scope) -> bool:
    return scope.site in ("", one.site.name) and scope.pool in ("", one.pool.name)
