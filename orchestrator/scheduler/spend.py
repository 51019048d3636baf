"""Where money lets a gang go: nodes as far as the budgets of its queue, and of those above it, have dollars left.

Comes in: what nodes cost (`Rates`), what the scopes of a line have left, a shape. Goes out: what a gang costs at least,
rows that these budgets pay for together. Called by: starting, place, groups, waits, refuse. A line without budgets asks
nothing of this.

What a node costs a scope is nothing where its buyer is within that scope, which pays for it anyway. Where the place
that a gang would take is too dear, units are given out on the cheapest rows first as long as dollars are left, domain
by domain of the level that it requires, and it chooses among those. Where one budget binds, and the gang has no
segments, that finds a place whenever there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import WHOLE, Rows
from orchestrator.ledger.limits import Binding, Scope, scope_words
from orchestrator.ledger.scopes import queue_scope
from orchestrator.ledger.spending import MIB, USD, Rates
from orchestrator.ledger.state import State
from orchestrator.ledger.topology import Domains
from orchestrator.model.job import JobSpec
from orchestrator.model.need import gangs_of, need_of, pools_for
from orchestrator.model.reasons import Reason, amount_words, reason
from orchestrator.model.standing import PoolPrice
from orchestrator.scheduler.domains import Candidates
from orchestrator.scheduler.grouped import Grouped
from orchestrator.scheduler.shapes import Shape, Totals
from orchestrator.scheduler.watts import Choosing, homes

Numbers = NDArray[np.int64]
FREE = 1 << 60  # what is left where more than everything is


@dataclass(frozen=True, slots=True)
class Money:
    """Dollars that a line may still commit: of each scope with a ceiling what is used and left, and whether nodes by
    row cost it anything. `sizes`: bytes of the smallest device by row."""

    rates: Rates
    scopes: tuple[Scope, ...]
    used: tuple[int, ...]
    charged: NDArray[np.bool_]  # [scopes, rows]
    sizes: Numbers

    @property
    def left(self) -> Numbers:
        """Of each scope."""
        pairs = zip(self.scopes, self.used, strict=True)
        return np.array([max(scope.ceilings[USD] - used, 0) for scope, used in pairs], np.int64)

    def part(self, shape: Shape, rows: Rows, units: Numbers) -> Numbers:
        """What so many units cost on each of these rows, rounded up, whoever pays."""
        rates, need = self.rates, shape.need
        price, gpus = rates.price[rows], rates.gpus[rows]
        if need.exclusive:
            return np.where(units > 0, price, 0)
        by_gpus = _part(price, self._milli(shape, rows) * units, gpus * WHOLE)
        cores = _part(price, need.cores * units, rates.cores[rows])
        memory = _part(price, -(-need.memory >> MIB) * units, rates.memory[rows])
        return np.where(gpus > 0, by_gpus, np.maximum(cores, memory))

    def _milli(self, shape: Shape, rows: Rows) -> Numbers:
        need = shape.need
        if need.shares and not need.milli:
            return -(-need.device_bytes * WHOLE // np.maximum(self.sizes[rows], 1)).clip(max=WHOLE)
        if shape.mig is not None:
            return shape.mig.unit_milli(rows)
        return np.full(len(rows), shape.unit_milli, np.int64)

    def costs(self, shape: Shape, rows: Rows, units: Numbers) -> Numbers:
        """The same as each scope pays it: [scopes, rows]."""
        paid: Numbers = self.part(shape, rows, units) * self.charged[:, rows]
        return paid

    def least(self, shape: Shape, totals: Totals, pool_rows: dict[str, Rows], pool: str) -> Numbers:
        """What the gang costs each scope in that pool, or of a gang of groups in that way, at least."""
        if isinstance(shape, Grouped):
            pairs = zip(shape.groups, shape.ways[pool], strict=True)
            each = [self.least(one, totals, pool_rows, name) for one, name in pairs]
            found: Numbers = np.sum(each, axis=0)
            return found
        rows, units = shape.homes(totals, pool, pool_rows[pool])
        costs = self.costs(shape, rows, np.ones(len(rows), np.int64))
        if shape.need.exclusive:
            nodes = _fewest(units, shape.need.units)
            alone: Numbers = np.sort(costs, axis=1)[:, :nodes].sum(axis=1)
            return alone
        cheapest: Numbers = costs.min(axis=1, initial=FREE)
        # Every unit by itself is rounded up; one part of many units is so only once.
        floor = np.maximum(cheapest - 1, 0) * shape.need.units + (cheapest > 0)
        return np.where(len(rows), floor, 0)

    def binding(self, need: Numbers) -> Binding | None:
        """The innermost budget that does not take so much."""
        for scope, used, left, amount in zip(self.scopes, self.used, self.left, need.tolist(), strict=True):
            if amount > left:
                ceiling = scope.ceilings[USD]
                over = used + amount - ceiling
                return Binding(scope.name, USD, ceiling, used, over, budget=scope.budgets.get(USD, ""))
        return None

    def takes(self, gang: Iterable[tuple[Shape, Candidates]]) -> Numbers:
        """What these rows cost each scope together, of one group or of several."""
        total = np.zeros(len(self.scopes), np.int64)
        for shape, chosen in gang:
            total += self.costs(shape, chosen.rows, chosen.units.astype(np.int64)).sum(axis=1)
        return total

    def too_dear(self, shape: Shape, rows: Rows) -> NDArray[np.bool_]:
        """On which of these rows a lone unit would pass a budget."""
        costs = self.costs(shape, rows, np.ones(len(rows), np.int64))
        found: NDArray[np.bool_] = np.any(costs > self.left[:, None], axis=0)
        return found

    def as_far(self, shape: Shape, found: Candidates) -> Candidates:
        """Units given out on the cheapest rows first, as long as dollars are left."""
        left, units = self.left, np.zeros(len(found.rows), np.int64)
        each = self.costs(shape, found.rows, np.ones(len(found.rows), np.int64)).sum(axis=0)
        wanted = shape.need.units
        for at in np.lexsort((found.rows, found.costs, each)).tolist():
            row = found.rows[at : at + 1]
            most = min(int(found.units[at]), wanted)
            counts = np.arange(most + 1, dtype=np.int64)
            costs = self.costs(shape, np.repeat(row, most + 1), counts)
            units[at] = int((costs <= left[:, None]).all(axis=0).sum()) - 1
            left = left - costs[:, units[at]]
        ok = units > 0
        return Candidates(found.rows[ok], units[ok], found.costs[ok])


def choose_paid(
    money: Money, shape: Shape, found: Candidates, choosing: Choosing, home: Domains | None
) -> Candidates | None:
    """As `choosing` for the whole gang, within what budgets pay for. `home`: the level in one domain of which it has to
    stay; None if it may go anywhere."""
    chosen = choosing(found)
    if chosen is None or money.binding(money.takes([(shape, chosen)])) is None:
        return chosen
    for mine in homes(found.rows, home):
        chosen = choosing(money.as_far(shape, found.of(mine)))
        if chosen is not None:
            return chosen
    return None


class Paid:
    """What is known of prices as long as they stay: whom nodes cost something, and what shapes cost at least."""

    def __init__(self, rates: Rates, device_memory: NDArray[np.int64]) -> None:
        """`device_memory`: [rows, slots], bytes."""
        self.rates = rates
        sizes = np.where(device_memory > 0, device_memory, FREE).min(axis=1, initial=FREE)
        self._sizes = sizes[: len(rates.price)]
        self._known: dict[tuple[str, ...], Money] = {}
        self._least: dict[tuple[tuple[str, ...], int, str], Numbers] = {}

    def money(self, scopes: tuple[Scope, ...], used: Callable[[str], int]) -> Money:
        """What these scopes may still commit; `used`: what they have committed."""
        names = tuple(scope.name for scope in scopes)
        known = self._known.get(names)
        if known is None:
            charged = np.ones((len(scopes), len(self.rates.price)), bool)
            for at, name in enumerate(names):
                within = [number for number, path in enumerate(self.rates.payers) if name in path]
                charged[at] = ~np.isin(self.rates.payer, within)
            known = self._known[names] = Money(self.rates, scopes, (), charged, self._sizes)
        return replace(known, used=tuple(used(name) for name in names))

    def least(
        self, money: Money, shape: Shape, totals: Totals, pool_rows: dict[str, Rows], pool: str
    ) -> Numbers:
        """As `Money.least`, found once."""
        key = (tuple(scope.name for scope in money.scopes), shape.number, pool)
        found = self._least.get(key)
        if found is None:
            found = self._least[key] = money.least(shape, totals, pool_rows, pool)
        return found


def never_paid(state: State, spec: JobSpec, queue: str) -> Reason | None:
    """A budget that the job alone would pass wherever it goes. Only what is certain counts: where nodes are bought, or
    cost nothing that is known, nothing is."""
    prices = {one.pool: one for one in state.prices} if state.spending is not None else {}
    if not prices or state.cluster is None:
        return None
    least = 0
    for gang in gangs_of(spec):
        pools = pools_for(state.cluster, gang)
        costs = [_at_least(prices[pool.name], gang) if pool.name in prices else 0 for pool in pools]
        least += min(costs, default=0)
    for scope in state.limits.path(queue_scope(queue)):
        ceiling = scope.ceilings.get(USD)
        if ceiling is not None and least > ceiling:
            budget, words = scope.budgets[USD], scope_words(scope.name)
            most, need = amount_words(USD, ceiling), amount_words(USD, least)
            return reason("never.spending", budget=budget, scope=words, ceiling=most, need=need)
    return None


def _at_least(price: PoolPrice, spec: JobSpec) -> int:
    """What equal nodes of that price cost for the gang, rounded down."""
    need, shape = need_of(spec), price.shape
    nodes = need.units if need.spread else 1
    if need.exclusive:
        return nodes * price.microusd_per_hour
    if shape.gpus:
        milli = need.milli or (0 if need.mig else need.gpus * WHOLE)
        return price.microusd_per_hour * milli * need.units // (shape.gpus * WHOLE)
    cores = price.microusd_per_hour * need.cores * need.units // max(shape.cores, 1)
    memory = price.microusd_per_hour * need.memory * need.units // max(shape.memory, 1)
    return min(max(cores, memory), need.units * price.microusd_per_hour)


def _fewest(units: Numbers, wanted: int) -> int:
    """How many nodes it takes at least, of which each gives so many units; all, if they are too few."""
    most = np.sort(np.minimum(units, wanted))[::-1].cumsum()
    return int(np.searchsorted(most, wanted)) + 1


def _part(price: Numbers, amount: Numbers, there: Numbers) -> Numbers:
    """That part of the price, rounded up; all of it where nobody knows what is there."""
    part = -(-price * amount // np.maximum(there, 1))
    return np.where(amount >= there, np.where(amount > 0, price, 0), part)
