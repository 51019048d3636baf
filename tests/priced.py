"""Dollars an hour on paper: what is committed in each scope, from a State's records alone.

Comes in: a State. Goes out: micro-dollars by scope and dimension. Called by: the invariants, the exhaustive solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from orchestrator.ledger.state import State
from orchestrator.model.attempt import PartState, Placement
from orchestrator.model.capacity import Shape
from orchestrator.model.cluster import Budget
from orchestrator.model.job import JobSpec, LaunchKind
from orchestrator.model.need import gangs_of

WHOLE = 1000
Dollars = dict[tuple[str, str], int]


class PricedNode(NamedTuple):
    """A node that costs something, and the queue that it was bought for."""

    pool: str
    price: int
    shape: Shape
    buyer: str

    def paid(self, part: Placement) -> int:
        """What who has that part of it pays."""
        return ceil(self.price * min(self._share(part), Fraction(1)))

    def _share(self, part: Placement) -> Fraction:
        if self.shape.gpus:
            milli = sum(part.milli) if part.milli else len(part.slots) * WHOLE
            return Fraction(milli, self.shape.gpus * WHOLE)
        return max(Fraction(part.cores, self.shape.cores or 1), Fraction(part.memory, self.shape.memory or 1))


def hourly(state: State) -> list[Budget]:
    """The budgets of dollars an hour."""
    return [one for one in (state.cluster.budgets if state.cluster else ()) if one.microusd_per_hour]


def priced(state: State) -> dict[str, PricedNode]:
    """All nodes that cost something, by name."""
    pools = state.cluster.pools if state.cluster else ()
    known = {queue.name: True for queue in (state.cluster.queues if state.cluster else ())}
    found = {
        name: PricedNode(one.pool, one.microusd_per_hour, one.shape, "")
        for one in state.prices
        for pool in pools
        for name in (pool.nodes if pool.name == one.pool else ())
    }
    for fleet in state.fleets.values():
        intent = fleet.intent
        buyer = intent.queue if intent.queue in known else ""
        for name in [one.node for one in fleet.instances] or intent.nodes:
            found[name] = PricedNode(intent.pool, intent.price, intent.shape, buyer)
    return found


def held(state: State) -> Iterator[tuple[str, Placement]]:
    """What queues hold of nodes."""
    for job in state.jobs.values():
        for part in job.attempt.parts if job.attempt is not None else ():
            if part.state is not PartState.ENDED:
                yield job.spec.queue, part.placement


def dollars_on_paper(state: State, more: Iterable[tuple[str, Placement]] = ()) -> Dollars:
    """What is committed each hour: whole nodes at budgets and in the queues that they were bought for, parts of them in
    others. `more` is held besides."""
    found: Dollars = {}
    if not hourly(state):
        return found
    nodes = priced(state)
    for queue, part in [*held(state), *more]:
        if part.node in nodes:
            node = nodes[part.node]
            _pay(state, found, queue, node.paid(part), _above(state, node.buyer))
    for node in nodes.values():
        _pay(state, found, node.buyer, node.price, ())
        _exists(state, found, node)
    return {key: amount for key, amount in found.items() if amount}


def _above(state: State, queue: str) -> tuple[str, ...]:
    """The scopes of a queue and of those above it; none for none."""
    queues = {one.name: one.parent for one in (state.cluster.queues if state.cluster else ())}
    found = []
    while queue:
        found.append(f"queue={queue}")
        queue = queues.get(queue, "")
    return (*found, "cluster") if found else ()


def _pay(state: State, found: Dollars, queue: str, amount: int, but: tuple[str, ...]) -> None:
    for scope in _above(state, queue):
        if scope not in but:
            found[scope, "usd"] = found.get((scope, "usd"), 0) + amount


def _exists(state: State, found: Dollars, node: PricedNode) -> None:
    sites = {pool.name: pool.site for pool in (state.cluster.pools if state.cluster else ())}
    for budget in hourly(state):
        scope = budget.scope
        here = scope.pool in ("", node.pool) and scope.site in ("", sites.get(node.pool))
        if here and not scope.queue:
            key = (f"budget={budget.name}", "usd")
            found[key] = found.get(key, 0) + node.price


def passed(state: State, committed: Dollars) -> list[str]:
    """The budgets whose limit that is more than."""
    found = []
    for budget in hourly(state):
        scope = f"queue={budget.scope.queue}" if budget.scope.queue else f"budget={budget.name}"
        if committed.get((scope, "usd"), 0) > budget.microusd_per_hour:
            found.append(budget.name)
    return found


def gang_dollars(state: State, spec: JobSpec, pool: str) -> tuple[int, bool]:
    """What a gang (of groups: in pools a+b) costs on standing nodes there; and whether that is certain: not of shares
    by memory and MIG instances, nor of how many nodes tasks take that want them alone."""
    prices = {one.pool: PricedNode(one.pool, one.microusd_per_hour, one.shape, "") for one in state.prices}
    total, certain = 0, True
    for gang, name in zip(gangs_of(spec), pool.split("+"), strict=True):
        if name in prices:
            cost, known = _gang_dollars(prices[name], gang)
            total, certain = total + cost, certain and known
    return total, certain


def _gang_dollars(node: PricedNode, spec: JobSpec) -> tuple[int, bool]:
    request = spec.request
    units, share = request.nodes or request.tasks, request.per_node if request.nodes else request.per_task
    if request.exclusive:
        return node.price * (request.nodes or 1), bool(request.nodes) or units == 1
    if share.mig or (share.gpu_memory and not (share.gpus or share.gpu_milli)):
        return 0, False
    ranks = request.tasks_per_node if request.nodes and spec.launch is LaunchKind.RANKS else 1
    cores = share.cores or (0 if share.gpus or share.gpu_milli else ranks)
    slots = tuple(range(share.gpus)) if share.gpus else (0,) if share.gpu_milli else ()
    milli = (share.gpu_milli,) if share.gpu_milli and not share.gpus else ()
    return units * node.paid(Placement("", slots, 1, cores, share.memory, milli)), True
