"""Money that is committed each hour: what nodes cost, and whose work it is that they cost it for.

Comes in: the budgets of the file, prices (facts: of standing pools with the applied file, of bought nodes with their
intent), which parts of nodes are taken and given back. Goes out: use in the limit tree, dimension `usd`, in
micro-dollars an hour: in the scopes `budget=NAME` of sites, pools and the whole cluster, and in those of queues;
`Rates` for those who place. Called by: state, statement, apply_capacity, autoscale.

A node's price is committed at its budgets' scopes for as long as it exists, from the decision to buy it until it is
gone; work on it adds nothing there. In the same way it is committed in the queue that it was bought for, and in those
above: whoever else works there may leave at any moment, so that their part can't be taken off. Other work counts for
its part of the node in its queue, up to where a queue pays for all of the node anyway. Of nodes that stand, or were
bought for no queue, no queue pays for what is idle.

The part is GPUs of the node's GPUs; on nodes without GPUs the larger of the parts of cores and memory; rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import WHOLE, Capacity
from orchestrator.ledger.limits import LimitTree, Scope
from orchestrator.ledger.records import Fleet
from orchestrator.ledger.scopes import budget_scope, queue_scope
from orchestrator.model.attempt import Placement
from orchestrator.model.capacity import Intent, Shape
from orchestrator.model.cluster import Budget, ClusterSpec
from orchestrator.model.standing import PoolPrice

USD = "usd"
MIB = 20  # bits: bytes times micro-dollars would not fit into 64
Numbers = NDArray[np.int64]


class Rates(NamedTuple):
    """What nodes cost, a row each: micro-dollars an hour (0: nothing), the place of the buyer in `payers` (-1: nobody),
    GPUs, cores and MiB that the price is for. `payers`: scopes of queues inside out."""

    price: Numbers
    payer: Numbers
    gpus: Numbers
    cores: Numbers
    memory: Numbers
    payers: tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Priced:
    """A node that costs something. `held`: what work pays of it, by queue."""

    pool: str
    price: int
    shape: Shape
    buyer: str = ""  # the scope of the queue that it was bought for
    held: dict[str, int] = field(default_factory=dict)

    def part(self, placement: Placement) -> int:
        """What somebody pays for so much of it."""
        if self.shape.gpus:
            milli = sum(placement.milli) if placement.milli else len(placement.slots) * WHOLE
            return self.of(milli, self.shape.gpus * WHOLE)
        cores, memory = self.shape.cores, self.shape.memory
        return max(self.of(placement.cores, cores), self.of(placement.memory, memory))

    def of(self, amount: int, there: int) -> int:
        """The part of the price for so much of what is there; all of it where nobody knows what is there."""
        if amount >= there:
            return self.price if amount else 0
        return -(-self.price * amount // there)


class Spending:
    """The nodes that cost something, and what they are committed to."""

    def __init__(self, cluster: ClusterSpec, limits: LimitTree) -> None:
        self.version = 0  # another one: prices or buyers are others
        self.nodes: dict[str, Priced] = {}
        self.budgets = hourly(cluster)
        self._sites = {pool.name: pool.site for pool in cluster.pools}
        # A queue that the file has no more pays for nothing.
        self._queues = {queue.name: True for queue in cluster.queues}
        self._limits = limits
        self._rates: tuple[tuple[int, int], Rates] | None = None
        for budget in self.budgets:
            if not budget.scope.queue:
                name = budget_scope(budget.name)
                limits.add(name, "", {USD: budget.microusd_per_hour}, {USD: budget.name})

    def stand(self, name: str, node: Priced) -> None:
        """The node costs that from now on."""
        self.nodes[name] = node
        self._exists(node, 1)
        self._pay(node.buyer, node.price)
        self.version += 1

    def bought(self, fleet: Fleet) -> None:
        """What of it exists, or all that is asked for, costs its price from now on."""
        intent = fleet.intent
        buyer = queue_scope(intent.queue) if intent.queue in self._queues else ""
        for name in [one.node for one in fleet.instances] or intent.nodes:
            self.stand(name, Priced(intent.pool, intent.price, intent.shape, buyer))

    def refused(self, intent: Intent) -> None:
        """None of it will exist."""
        for name in intent.nodes:
            self.gone(name)

    def gone(self, name: str) -> None:
        """It costs nothing any more, whoever has still a part of it."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self._exists(node, -1)
            self._pay(node.buyer, -node.price)
            for queue, amount in node.held.items():
                self._pay(queue, -amount, node.buyer)
            self.version += 1

    def scopes(self) -> list[Scope]:
        """Those of budgets that are of no queue."""
        return [self._limits.scopes[budget_scope(one.name)] for one in self.budgets if not one.scope.queue]

    def take(self, part: Placement, queue: str) -> None:
        """Work of a queue has that part of a node from now on."""
        self._shift(part, queue, 1)

    def release(self, part: Placement, queue: str) -> None:
        """It has it no more."""
        self._shift(part, queue, -1)

    def take_all(self, parts: tuple[Placement, ...], queue: str) -> None:
        """It has all of these."""
        for part in parts:
            self._shift(part, queue, 1)

    def release_all(self, parts: tuple[Placement, ...], queue: str) -> None:
        """It has none of them any more."""
        for part in parts:
            self._shift(part, queue, -1)

    def _shift(self, part: Placement, queue: str, sign: int) -> None:
        node = self.nodes.get(part.node)
        if node is None:
            return
        amount = sign * node.part(part)
        node.held[queue] = node.held.get(queue, 0) + amount
        self._pay(queue, amount, node.buyer)

    def _exists(self, node: Priced, sign: int) -> None:
        for budget in self.budgets:
            scope = budget.scope
            here = scope.pool in ("", node.pool) and scope.site in ("", self._sites.get(node.pool))
            if here and not scope.queue:
                self._add(budget_scope(budget.name), sign * node.price)

    def _pay(self, queue: str, amount: int, buyer: str = "") -> None:
        """In the queue and those above it, up to one that the buyer is within."""
        paying = {scope.name: True for scope in self._limits.path(buyer)} if buyer else {}
        for scope in self._limits.path(queue) if amount and queue else ():
            if scope.name not in paying:
                self._add(scope.name, amount)

    def _add(self, scope: str, amount: int) -> None:
        used = self._limits.scopes[scope].used
        used[USD] = used.get(USD, 0) + amount
        if not used[USD]:
            del used[USD]
        self._limits.version += amount < 0

    def by_queue(self) -> dict[str, tuple[int, int]]:
        """What is committed in each queue of the file, and what may be; 0: no budget of its own."""
        scopes = {name: self._limits.scopes[queue_scope(name)] for name in self._queues}
        return {name: (one.used.get(USD, 0), one.ceilings.get(USD, 0)) for name, one in scopes.items()}

    def rates(self, capacity: Capacity) -> Rates:
        """What the nodes of capacity cost; made anew when they are others."""
        now = (self.version, capacity.version)
        if self._rates is None or self._rates[0] != now:
            self._rates = now, self._rates_of(capacity)
        return self._rates[1]

    def _rates_of(self, capacity: Capacity) -> Rates:
        columns = np.zeros((5, capacity.rows), np.int64)
        columns[1] = -1
        payers: dict[str, int] = {}
        for name, node in self.nodes.items():
            row = capacity.index.get(name)
            if row is not None:
                payer = payers.setdefault(node.buyer, len(payers)) if node.buyer else -1
                shape = node.shape
                columns[:, row] = (node.price, payer, shape.gpus, shape.cores, shape.memory >> MIB)
        paths = tuple(tuple(scope.name for scope in self._limits.path(name)) for name in payers)
        return Rates(columns[0], columns[1], columns[2], columns[3], columns[4], paths)

    def adds(self, queue: str, name: str, part: Placement) -> dict[str, int]:
        """What such a part of a node would add in each scope of a queue's path, inside out; nothing where its buyer is
        within that scope, which pays for it anyway."""
        node = self.nodes.get(name)
        if node is None:
            return {}
        paying = {scope.name: True for scope in self._limits.path(node.buyer)} if node.buyer else {}
        amount = node.part(part)
        return {one.name: amount for one in self._limits.path(queue) if one.name not in paying}


def hourly(cluster: ClusterSpec) -> list[Budget]:
    """Its budgets of dollars an hour."""
    return [budget for budget in cluster.budgets if budget.microusd_per_hour]


def queue_budgets(cluster: ClusterSpec | None, queue: str) -> tuple[dict[str, int], dict[str, str]]:
    """The ceiling that budgets set a queue, and the name of the least of them."""
    mine = [budget for budget in (hourly(cluster) if cluster else ()) if budget.scope.queue == queue]
    if not mine:
        return {}, {}
    least = min(mine, key=lambda budget: budget.microusd_per_hour)
    return {USD: least.microusd_per_hour}, {USD: least.name}


def spending_of(
    cluster: ClusterSpec | None, limits: LimitTree, prices: Iterable[PoolPrice], fleets: Iterable[Fleet]
) -> Spending | None:
    """With all that there is; None for a cluster without budgets of dollars an hour."""
    if cluster is None or not hourly(cluster):
        return None
    made = Spending(cluster, limits)
    nodes = {pool.name: pool.nodes for pool in cluster.pools}
    for one in prices:
        for name in nodes.get(one.pool, ()):
            made.stand(name, Priced(one.pool, one.microusd_per_hour, one.shape))
    for fleet in fleets:
        made.bought(fleet)
    return made
