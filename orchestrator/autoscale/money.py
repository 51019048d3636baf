"""Budgets of money: what is committed, and whether one more launch fits into all that apply to it.

Comes in: State, policy, the time; launches as the pass decides on them. Goes out: the budget that binds, if one does.
Called by: cycle.

An hour's commitment is the price of all that exists or is being launched, until the cloud says that it is gone. A
month's is what was billed in it, and what exists at its price until its work must be over: by its time limit and the
pool's idle time, to the month's end where neither says so. So a launch that fits can end as it likes without passing
the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.autoscale.policy import Policy
from orchestrator.ledger.apply_capacity import HOUR_US
from orchestrator.ledger.records import Attempt, Fleet
from orchestrator.ledger.state import State, time_limit_s
from orchestrator.model.capacity import Offer, cost
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Budget, Pool
from orchestrator.model.job import JobSpec

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
            if not applies(budget, offer.key.pool, offer.site, queue):
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
            if applies(budget, pool, site, queue):
                self.hourly[budget.name] += hourly
                self.monthly[budget.name] += monthly


def applies(budget: Budget, pool: str, site: str, queue: str) -> bool:
    """Whether a launch counts in a budget; one without a scope is of the whole cluster."""
    scope = budget.scope
    return scope.pool in ("", pool) and scope.site in ("", site) and scope.queue in ("", queue)


def open_purse(state: State, policy: Policy, now_us: int) -> Purse:
    """All budgets of money, with what is committed now."""
    purse = Purse(state, policy, now_us)
    for budget in state.cluster.budgets if state.cluster is not None else ():
        if budget.microusd_per_hour or budget.microusd_per_month:
            purse.budgets.append(budget)
            purse.hourly[budget.name] = purse.monthly[budget.name] = 0
    if purse.budgets:
        _stand(purse)
        _spent(purse)
        _live(purse)
    return purse


def _stand(purse: Purse) -> None:
    """Nodes that stand all the time: the whole month of them is committed."""
    policy = purse.policy
    month_s = (policy.month_ends_us - policy.month_us) // SECOND if policy.month_us else 0
    for name, price in policy.standing:
        pool = purse.state.pool(name)
        if pool is not None:
            purse._count(name, pool.site, "", price, cost(price, month_s))


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
        purse._count(intent.pool, intent.site, intent.queue, intent.price * count, monthly)


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
