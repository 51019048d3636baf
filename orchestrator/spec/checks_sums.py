"""Checks of what adds up: guarantees against pools, parents and power, budgets against what pools must or may cost.

Comes in: `Context`. Goes out: faults. Called by: `checks`. Only what is certain is a fault: a price, a GPU model or a
power that is not known settles nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.model.catalog import DatedPrice
from orchestrator.model.cluster import Market, Site, SiteKind
from orchestrator.model.prices import negotiated
from orchestrator.spec.context import Context, rows, run
from orchestrator.spec.gpus import models_of_pool, most_gpus
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster_pools import PoolDocument
from orchestrator.wire.cluster_queues import BudgetDocument
from orchestrator.wire.cluster_sites import AwsSite
from orchestrator.wire.faults import Loc, Problem, problem
from orchestrator.wire.leaf import UnknownTouched

MICRO = 1_000_000
SHORTEST_MONTH_H = 28 * 24
CERTAIN = (Market.ON_DEMAND, Market.CAPACITY_RESERVATION)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One guarantee that counts against the cluster, and where it stands."""

    loc: Loc
    queue: str
    key: tuple[str, str]  # ("pool", name) or ("gpu_model", name)
    gpus: int


def counted_guarantees(context: Context) -> list[Guarantee]:
    """Those of each branch's highest queue that has one, in the order of the file.

    A guarantee of a queue covers those of the queues under it. Raises UnknownTouched where the tree is not sound.
    """
    own = _own_guarantees(context)
    parents = _parents(context)
    holders = {(one.queue, one.key) for one in own}
    return [
        one for one in own if not any((upper, one.key) in holders for upper in _above(one.queue, parents))
    ]


def _own_guarantees(context: Context) -> list[Guarantee]:
    found: list[Guarantee] = []
    for index, queue in enumerate(context.document.queues):
        for number, share in enumerate(queue.guarantee):
            kind, name = ("pool", share.pool) if share.pool is not None else ("gpu_model", share.gpu_model)
            if name is None:
                raise UnknownTouched
            found.append(
                Guarantee(
                    ("queues", index, "guarantee", number, "gpus"), queue.name, (kind, name), share.gpus
                )
            )
    return found


def _parents(context: Context) -> dict[str, str]:
    parents = {queue.name: queue.parent for queue in context.document.queues if queue.parent is not None}
    if not set(parents.values()) <= {queue.name for queue in context.document.queues}:
        raise UnknownTouched
    return parents


def _above(name: str, parents: dict[str, str]) -> list[str]:
    chain: list[str] = []
    while name in parents:
        name = parents[name]
        if name in chain:
            raise UnknownTouched  # a circle, told elsewhere
        chain.append(name)
    return chain


def guarantees_in_parents(context: Context) -> Iterator[Found]:
    """Guarantees under a queue fit into its own."""
    own = _own_guarantees(context)
    parents = _parents(context)
    held = {(one.queue, one.key): one.gpus for one in own}
    sums: dict[tuple[str, tuple[str, str]], int] = defaultdict(int)
    told: set[tuple[str, tuple[str, str]]] = set()
    for one in own:
        holder = next(((up, one.key) for up in _above(one.queue, parents) if (up, one.key) in held), None)
        if holder is None:
            continue
        sums[holder] += one.gpus
        if sums[holder] > held[holder] and holder not in told:
            told.add(holder)
            total = sum(o.gpus for o in own if _holder(o, parents, held) == holder)
            what = one.key[1]
            values = {"total": total, "capacity": held[holder], "over": total - held[holder]}
            found = problem("spec.guarantee-over-parent", parent=holder[0], what=what, **values)
            yield Found(one.loc, found)


def _holder(
    one: Guarantee, parents: dict[str, str], held: dict[tuple[str, tuple[str, str]], int]
) -> tuple[str, tuple[str, str]] | None:
    return next(((up, one.key) for up in _above(one.queue, parents) if (up, one.key) in held), None)


def guarantees_in_pools(context: Context) -> Iterator[Found]:
    """Guarantees fit into the pool, or into all pools of the model, that they are counted in."""
    counted = counted_guarantees(context)
    capacity = {pool.name: most_gpus(context, pool) for pool in context.document.pools}
    for name, gpus in capacity.items():
        if gpus is not None:
            yield from _over([one for one in counted if one.key == ("pool", name)], gpus, f"pool '{name}'", 0)
    for model in dict.fromkeys(one.key[1] for one in counted if one.key[0] == "gpu_model"):
        yield from _over_model(context, model, counted, capacity)


def _over_model(
    context: Context, model: str, counted: list[Guarantee], capacity: dict[str, int | None]
) -> Iterator[Found]:
    total = taken = 0
    for pool in context.document.pools:
        models, gpus = models_of_pool(context, pool), capacity[pool.name]
        if models is None or gpus is None or (model in models and len(models) > 1):
            return
        if model in models:
            total += gpus
            taken += min(gpus, sum(one.gpus for one in counted if one.key == ("pool", pool.name)))
    yield from _over(
        [one for one in counted if one.key == ("gpu_model", model)], total, f"GPUs of model {model}", taken
    )


def _over(guarantees: list[Guarantee], capacity: int, what: str, taken: int) -> Iterator[Found]:
    """A fault at the guarantee that passes the capacity."""
    total = taken + sum(one.gpus for one in guarantees)
    running = taken
    for one in guarantees:
        running += one.gpus
        if running > capacity:
            values = {"total": total, "capacity": capacity, "over": total - capacity}
            yield Found(one.loc, problem("spec.guarantee-over-capacity", what=what, **values))
            return


# --- money -----------------------------------------------------------------------------------------------------------


def money(context: Context) -> Iterator[Found]:
    """What a bought pool must cost, and what its largest size would, against the budgets that it falls under."""
    for index, pool in rows(context.document.pools):
        for _, budget in rows(context.document.budgets):
            yield from run((_pool_in_budget,), context, pool, budget, ("pools", index))


def _pool_in_budget(
    context: Context, pool: PoolDocument, budget: BudgetDocument, loc: Loc
) -> Iterator[Found]:
    if not _covers(budget, pool):
        return
    price = _least_price(context, pool)
    if not price:
        return
    low, high, field = _bounds(pool)
    values = {"budget": budget.name, "nodes": low}
    hourly, monthly = low * price, low * price * SHORTEST_MONTH_H
    if budget.usd_per_hour is not None and hourly > budget.usd_per_hour:
        working = f"{low} × {_usd(price)} an hour"
        values |= {
            "cost": _usd(hourly),
            "period": "an hour",
            "limit": _usd(budget.usd_per_hour),
            "working": working,
        }
        yield Found((*loc, *field), problem("spec.minimum-over-budget", **values))
    elif budget.usd_per_month is not None and monthly > budget.usd_per_month:
        working = f"{low} × {_usd(price)} × {SHORTEST_MONTH_H} hours"
        values |= {
            "cost": _usd(monthly),
            "period": "a month",
            "limit": _usd(budget.usd_per_month),
            "working": working,
        }
        yield Found((*loc, *field), problem("spec.minimum-over-budget", **values))
    elif budget.usd_per_hour is not None and high * price > budget.usd_per_hour:
        yield Found((*loc, "size", "max"), _unreachable(high, price, budget.name, budget.usd_per_hour))


def _bounds(pool: PoolDocument) -> tuple[int, int, Loc]:
    """The least and the most nodes of a bought pool, and the field that says the least."""
    if pool.size is not None:
        return pool.size.min, pool.size.max, ("size", "min")
    return len(pool.nodes or ()), len(pool.nodes or ()), ("nodes",)


def _unreachable(nodes: int, price: int, budget: str, limit: int) -> Problem:
    return problem(
        "spec.unreachable-ceiling",
        what=f"a size of {nodes} nodes",
        budget=budget,
        limit=f"{_usd(limit)} an hour",
        need=f"{_usd(nodes * price)}",
        working=f"{nodes} × {_usd(price)} an hour",
    )


def _covers(budget: BudgetDocument, pool: PoolDocument) -> bool:
    scope = budget.applies_to
    if scope is None:
        return True
    return scope.queue is None and (scope.site == pool.site or scope.pool == pool.name)


def _least_price(context: Context, pool: PoolDocument) -> int:
    """The least that a node of the pool can cost in an hour; 0 where any offering's price is open: spot, paid
    beforehand, unknown, or of a file that could not be read."""
    site = next((site for _, site in rows(context.document.sites) if site.name == pool.site), None)
    if not isinstance(site, AwsSite) or site.name in context.unpriced:
        return 0
    prices = [_price(context, site, name, one.market) for one in pool.offerings for name in one.type]
    return min(prices, default=0)


def _price(context: Context, site: AwsSite, name: str, market: Market) -> int:
    """What is certain of a price: the negotiated one, or on demand that of the region."""
    as_model = Site(site.name, SiteKind.AWS, region=site.region, negotiated=context.prices.get(site.name, ()))
    own = negotiated(as_model, name, market)
    if own is not None:
        return own
    if market not in CERTAIN or name not in context.catalog.instances:
        return 0
    rows_of = context.catalog.instances[name].prices
    return max((one.microusd_per_hour for one in rows_of if _is_listed(one, site.region)), default=0)


def _is_listed(price: DatedPrice, region: str) -> bool:
    return price.region == region and price.market is Market.ON_DEMAND


def _usd(micro: int) -> str:
    return f"${micro / MICRO:,.2f}"


SUMS = (guarantees_in_parents, guarantees_in_pools, money)
