"""The pass on one page: order, place, and say why the rest waits. Booking, planning and backfill join here.

Comes in: State, `Policy`, the time in UTC microseconds, a work budget in probes (a probe is one look at one class
of jobs). Goes out: the decisions in order, reasons through the Reporter, State unchanged. Called by: controller/loop
and simulate.

The policy of this first version is strict order within a pool: by priority, then submit order. A gang that can't be
placed closes its pools to everyone behind it, so that no stream of small jobs starves it. A job that a *limit*
stops closes nothing: what it lacks is not in the pool.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.ledger.limits import Amounts, limit_reason
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import ClassKey, JobClass, Place, State, amounts, time_limit_s
from orchestrator.ledger.statement import Statement
from orchestrator.model.attempt import Placement
from orchestrator.model.decisions import Decision, Reporter, Start
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import DEFAULT_TIME_LIMIT_S, JobSpec, Workload
from orchestrator.model.reasons import Reason, reason
from orchestrator.scheduler import place, refuse


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of a pass."""

    default_time_limit_s: tuple[tuple[Workload, int], ...] = tuple(DEFAULT_TIME_LIMIT_S.items())

    def time_limit_s(self, state: State, spec: JobSpec) -> int:
        """As `ledger.state.time_limit_s` says."""
        return time_limit_s(state, spec, dict(self.default_time_limit_s))


@dataclass(slots=True)
class _Pass:
    """What one pass carries along."""

    state: State
    policy: Policy
    reporter: Reporter
    probes: int
    statement: Statement
    now_us: int
    decisions: list[Decision] = field(default_factory=list)
    closed: dict[str, int] = field(default_factory=dict)  # pool -> the job that waits for it


def decide(
    state: State, policy: Policy, now_us: int, work_budget: int, reporter: Reporter
) -> tuple[Decision, ...]:
    """What to start now. State is the same when this returns, whatever happens inside."""
    run = _Pass(state, policy, reporter, work_budget, Statement(state), now_us)
    stop = refuse.stop_reason(state)
    try:
        for job_class, job in _in_order(run, stop):
            _try_start(run, job_class, job)
    finally:
        run.statement.rollback(0)
    return tuple(run.decisions)


def _in_order(run: _Pass, stop: Reason | None) -> Iterator[tuple[JobClass, Job]]:
    """Jobs by priority, then id, over all classes; a class leaves when a job of it is blocked."""
    heads: list[tuple[Place, int, ClassKey]] = []
    for number, (key, job_class) in enumerate(run.state.classes.items()):
        if stop is not None:
            run.reporter.class_blocked(key, stop)
        else:
            heads.append((job_class.waiting[0], number, key))
    heapq.heapify(heads)
    taken = [0] * len(heads)
    while heads and run.probes > 0:
        run.probes -= 1
        at, number, key = heads[0]
        job_class = run.state.classes[key]
        started = len(run.decisions)
        yield job_class, run.state.jobs[at.job]
        taken[number] += 1
        if len(run.decisions) > started and taken[number] < len(job_class.waiting):
            heapq.heapreplace(heads, (job_class.waiting[taken[number]], number, key))
        else:
            heapq.heappop(heads)
    for _, _, key in sorted(heads):  # the budget ran out before these were looked at
        run.reporter.class_blocked(key, reason("wait.next-pass"))


def _try_start(run: _Pass, job_class: JobClass, job: Job) -> None:
    """Start the job in the first pool that takes it, is open to it, and fits its limits; else tell why not."""
    scope = run.state.scope(job)
    options = place.options(run.state, job)
    if not options:
        _block(run, job_class.key, job, place.why_not(run.state, job))
        return
    reasons: list[Reason] = []
    for option in options:
        wanted = amounts(run.state, option.placements)
        over = run.state.limits.binding(scope, wanted)
        if over is not None:
            reasons.append(limit_reason(over))
        elif option.pool in run.closed:
            reasons.insert(0, reason("wait.order", pool=option.pool, ahead=run.closed[option.pool]))
        else:
            _start(run, job_class.key, job, option.placements, wanted)
            return
    run.reporter.class_blocked(job_class.key, reasons[0])


def _start(run: _Pass, key: ClassKey, job: Job, parts: tuple[Placement, ...], wanted: Amounts) -> None:
    address, port = place.rendezvous(run.state, job.spec, job.id, parts)
    if port < 0:
        first, last = place.port_range(run.state, parts)
        run.reporter.class_blocked(key, reason("wait.ports", address=address, first=first, last=last))
        return
    run.statement.take(run.state.scope(job), parts, wanted, address, port)
    limit = run.policy.time_limit_s(run.state, job.spec)
    run.decisions.append(Start(AttemptId(job.id, job.attempts + 1), parts, address, port, limit))


def _block(run: _Pass, key: ClassKey, job: Job, blocked: place.Blocked) -> None:
    """Tell why, and keep the pools it waits for from everyone behind it."""
    run.reporter.class_blocked(key, blocked.reason)
    for pool in (*blocked.pools, *_booked(run, job)):
        run.closed.setdefault(pool, job.id)


def _booked(run: _Pass, job: Job) -> Iterator[str]:
    """Pools where nodes come that were bought for the job: they are kept for it until the intent's time is over."""
    for fleet in run.state.fleets.values():
        if fleet.intent.job == job.id and run.now_us < fleet.intent.until_us:
            yield fleet.intent.pool
