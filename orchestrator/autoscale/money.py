"""Budgets of money: what is committed, and whether one more launch fits into all that apply to it.

Comes in: State, policy, the time; launches as the pass decides on them. Goes out: the budget that binds, if one does.
Called by: cycle.

An hour's commitment is what the limit tree has (ledger.spending): the price of all that exists or is being launched,
until the cloud says that it is gone, and in a queue what it pays of that. A month's is what was billed in it, and what
exists at its price until its work must be over: by its time limit and the pool's idle time, to the month's end where
neither says so. So a launch that fits can end as it likes without passing the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.autoscale.policy import Policy
from orchestrator.autoscale.room import Taken
from orchestrator.ledger.apply_capacity import HOUR_US
from orchestrator.ledger.limits import Binding
from orchestrator.ledger.records import Attempt, Fleet
from orchestrator.ledger.scopes import budget_scope, queue_scope
from orchestrator.ledger.spending import USD
from orchestrator.ledger.state import State, time_limit_s
from orchestrator.model.capacity import Offer, cost
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Budget, Pool
from orchestrator.model.job import JobSpec
from orchestrator.model.need import Need

LEAVE_S = 300  # how long an instance that is being ended may still be billed


@dataclass(frozen=True, slots=True)
class Over:
    """The budget that does not take a launch; all in micro-dollars. `period` is `hour` or `month`."""

    budget: str
    period: str
    ceiling: int
    used: int
    need: int


@dataclass(slots=True)
class Purse:
    """The budgets of money, with what is committed on each."""

    state: State
    policy: Policy
    now_us: int
    budgets: list[Budget] = field(default_factory=list)
    hourly: dict[str, int] = field(default_factory=dict)
    monthly: dict[str, int] = field(default_factory=dict)

    def over(self, offer: Offer, count: int, queue: str, until_us: int) -> Over | None:
        """The first budget that so many nodes would pass, if they may run until then; None if all take them."""
        for budget in self.budgets:
            if not self._applies(budget, offer.key.pool, offer.site, queue):
                continue
            hourly = offer.price * count
            if budget.microusd_per_hour and self.hourly[budget.name] + hourly > budget.microusd_per_hour:
                used = self.hourly[budget.name]
                return Over(budget.name, "hour", budget.microusd_per_hour, used, hourly)
            monthly = count * cost(offer.price, self._seconds_to(until_us))
            if budget.microusd_per_month and self.monthly[budget.name] + monthly > budget.microusd_per_month:
                used = self.monthly[budget.name]
                return Over(budget.name, "month", budget.microusd_per_month, used, monthly)
        return None

    def parts(self, queue: str, taken: Taken, need: Need) -> dict[str, int]:
        """What a gang of the queue takes of each budget on nodes that are there or come."""
        spending, found = self.state.spending, dict[str, int]()
        scope = queue_scope(queue)
        if spending is None or scope not in self.state.limits.scopes:
            return found
        budgets = [budget for budget in self.budgets if budget.microusd_per_hour and budget.scope.queue]
        for spot, units in taken if budgets else ():
            adds = spending.adds(scope, spot.node, spot.part(need, units))
            for budget in budgets:
                found[budget.name] = found.get(budget.name, 0) + adds.get(queue_scope(budget.scope.queue), 0)
        return found

    def short(self, parts: Mapping[str, int]) -> Binding | None:
        """The first budget that these would pass."""
        for budget in self.budgets:
            used, need = self.hourly[budget.name], parts.get(budget.name, 0)
            most = budget.microusd_per_hour
            if need and used + need > most:
                scope = queue_scope(budget.scope.queue)
                return Binding(scope, USD, most, used, used + need - most, budget=budget.name)
        return None

    def take_parts(self, parts: Mapping[str, int], sign: int = 1) -> None:
        """Debit them, or give them back."""
        for name, amount in parts.items():
            self.hourly[name] += sign * amount

    def take(self, offer: Offer, count: int, queue: str, until_us: int) -> None:
        """Debit a launch in the pass that decides on it."""
        self._count(offer.key.pool, offer.site, queue, offer.price * count, 0)
        self._count(
            offer.key.pool, offer.site, queue, 0, count * cost(offer.price, self._seconds_to(until_us))
        )

    def _seconds_to(self, until_us: int) -> int:
        end_us = min(until_us, self.policy.month_ends_us)
        return max(-(-(end_us - self.now_us) // SECOND), 0)

    def _count(self, pool: str, site: str, queue: str, hourly: int, monthly: int) -> None:
        for budget in self.budgets:
            if self._applies(budget, pool, site, queue):
                self.hourly[budget.name] += hourly
                self.monthly[budget.name] += monthly

    def _applies(self, budget: Budget, pool: str, site: str, queue: str) -> bool:
        """Whether a launch counts in a budget: one without a scope is of the whole cluster, a queue's is of those below
        it too."""
        scope = budget.scope
        if scope.queue and scope.queue != queue:
            name, limits = queue_scope(queue), self.state.limits
            above = limits.path(name) if name in limits.scopes else ()
            return any(one.name == queue_scope(scope.queue) for one in above)
        return scope.pool in ("", pool) and scope.site in ("", site)

    def stand(self) -> None:
        """What the limit tree has of each hour, which knows of no nodes that stand in ledgers of old."""
        for budget in self.budgets if self.state.spending is not None else ():
            name = queue_scope(budget.scope.queue) if budget.scope.queue else budget_scope(budget.name)
            scope = self.state.limits.scopes.get(name)
            if scope is not None and budget.microusd_per_hour:
                self.hourly[budget.name] = scope.used.get(USD, 0)


def open_purse(state: State, policy: Policy, now_us: int) -> Purse:
    """All budgets of money, with what is committed now."""
    purse = Purse(state, policy, now_us)
    for budget in state.cluster.budgets if state.cluster is not None else ():
        if budget.microusd_per_hour or budget.microusd_per_month:
            purse.budgets.append(budget)
            purse.hourly[budget.name] = purse.monthly[budget.name] = 0
    if purse.budgets:
        purse.stand()
        _stand(purse)
        _spent(purse)
        _live(purse)
    return purse


def _stand(purse: Purse) -> None:
    """Nodes that stand all the time: the whole month of them is committed."""
    policy = purse.policy
    month_s = (policy.month_ends_us - policy.month_us) // SECOND if policy.month_us else 0
    known = {one.pool: True for one in purse.state.prices}
    for name, price in policy.standing:
        pool = purse.state.pool(name)
        if pool is not None:
            hourly = 0 if name in known else price
            purse._count(name, pool.site, "", hourly, cost(price, month_s))


def _spent(purse: Purse) -> None:
    """What was billed this month. The hour that the month begins in counts whole."""
    first = purse.policy.month_us // HOUR_US
    for account in purse.state.accounts.values():
        spent = sum(amount for hour, amount in account.hours if hour >= first)
        purse._count(account.pool, account.site, account.queue, 0, spent)


def _live(purse: Purse) -> None:
    """What exists or is asked for: its price an hour, and this month's bill until it must be gone."""
    ends = _Ends(purse.state, purse.policy, purse.now_us)
    for fleet in purse.state.fleets.values():
        intent, monthly, count = fleet.intent, 0, len(fleet.instances) or len(fleet.intent.nodes)
        begins = [one.launched_us for one in fleet.instances] or [fleet.since_us] * count
        names = [one.node for one in fleet.instances] or list(intent.nodes)
        for begun_us, name in zip(begins, names, strict=True):
            end_us = min(ends.of(fleet, name), purse.policy.month_ends_us)
            seconds = -(-(end_us - max(begun_us, purse.policy.month_us)) // SECOND)
            monthly += cost(intent.price, max(seconds, 0))
        purse._count(intent.pool, intent.site, intent.queue, 0, monthly)


class _Ends:
    """Until when nodes may be needed: the latest end of what runs on each, plus its pool's idle time."""

    def __init__(self, state: State, policy: Policy, now_us: int) -> None:
        self._state, self._policy, self._now_us = state, policy, now_us
        self._busy: dict[str, int] = {}
        self._floor = {pool.name: floor_of(pool) for pool in (state.cluster.pools if state.cluster else ())}
        for job in state.jobs.values():
            attempt = job.attempt
            if attempt is None:
                continue
            ends_us = _attempt_ends_us(policy, now_us, attempt)
            for part in attempt.parts:
                name = part.placement.node
                if state.nodes[name].instance:
                    self._busy[name] = max(self._busy.get(name, 0), ends_us)

    def of(self, fleet: Fleet, node: str) -> int:
        """UTC microseconds."""
        pool = self._state.pool(fleet.intent.pool)
        if pool is None or any(one.node == node and one.releasing_us for one in fleet.instances):
            return self._now_us + LEAVE_S * SECOND
        if self._floor[pool.name] > 0:
            self._floor[pool.name] -= 1
            return self._policy.month_ends_us
        idle_us = _idle_us(pool)
        if node in self._busy:
            return self._busy[node] + idle_us
        job = self._state.jobs.get(fleet.intent.job)
        if job is not None and job.attempt is None:
            return job_ends_us(self._state, self._policy, pool, job.spec, self._now_us)
        return self._now_us + idle_us


def _attempt_ends_us(policy: Policy, now_us: int, attempt: Attempt) -> int:
    if attempt.deadline_us:
        return max(attempt.deadline_us, now_us)
    return now_us + attempt.time_limit_s * SECOND if attempt.time_limit_s else policy.month_ends_us


def job_ends_us(state: State, policy: Policy, pool: Pool, spec: JobSpec, now_us: int) -> int:
    """When a job that gets nodes now must be over, and its nodes given back; endless work has none."""
    limit_s = time_limit_s(state, spec, dict(policy.usual_time_limit_s))
    if not limit_s:
        return policy.month_ends_us
    boot_s = pool.size.boot_deadline_s if pool.size is not None else 0
    return now_us + (boot_s + limit_s) * SECOND + _idle_us(pool)


def _idle_us(pool: Pool) -> int:
    """From the end of its work until a node is gone."""
    return ((pool.size.idle_s if pool.size is not None else 0) + LEAVE_S) * SECOND


def floor_of(pool: Pool) -> int:
    """Nodes that a bought pool always has."""
    return pool.size.min if pool.size is not None else 0
