"""The pass over capacity, on one page: give up, cover what waits, keep floors, give back.

Comes in: State, what is on offer (each pool's in its own order), policy, the time in UTC microseconds, a work budget in
probes (a probe is one look at one waiting job), the reasons of the scheduler's last pass. Goes out: decisions in order;
reasons through the Reporter; State unchanged. Called by: controller.capacity and simulate, after the scheduler's pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from orchestrator.autoscale import give_back, groups, market, renew
from orchestrator.autoscale.buying import buy, debit, hours_of, milli_of
from orchestrator.autoscale.money import Purse, floor_of, job_ends_us, open_purse
from orchestrator.autoscale.policy import Policy
from orchestrator.autoscale.room import Room, survey
from orchestrator.ledger.limits import Amounts, limit_reason
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import ClassKey, State
from orchestrator.model.capacity import Circuit, Offer, OfferingKey
from orchestrator.model.cluster import Pool
from orchestrator.model.decisions import CapacityDecision, CapacityReporter, Reasons
from orchestrator.model.need import Need, need_of, pools_for
from orchestrator.model.reasons import Reason, reason

# Reasons of the scheduler that more nodes would take away; a job that waits for anything else is bought nothing.
MORE_NODES_HELP = (
    "wait.gpus",
    "wait.alone",
    "wait.tasks",
    "wait.cores",
    "wait.memory",
    "wait.kept-for-gpus",
    "wait.domain",
    "wait.groups",
    "wait.share",
    "wait.device-memory",
    "wait.nodes-closed",
    "wait.few-nodes",
    "wait.order",
)


@dataclass(slots=True)
class Pass:
    """What one pass carries along."""

    state: State
    offers: Mapping[str, tuple[Offer, ...]]
    policy: Policy
    now_us: int
    reporter: CapacityReporter
    room: Room
    purse: Purse
    pools: list[Pool]
    sizes: dict[str, int]  # nodes of each pool that exist, come, or are being ended
    circuits: dict[OfferingKey, Circuit]  # of offerings that were tried; this pass's own failures are in them
    boot_failures: dict[str, int]  # by pool, in a row, with those of this pass
    decisions: list[CapacityDecision] = field(default_factory=list)
    closed: dict[str, int] = field(default_factory=dict)  # pool -> the job that buys there first
    launches: dict[OfferingKey, int] = field(default_factory=dict)  # under way, by offering
    names: dict[str, bool] = field(default_factory=dict)  # taken


def decide(
    state: State,
    offers: tuple[Offer, ...],
    policy: Policy,
    now_us: int,
    work_budget: int,
    reporter: CapacityReporter,
    waits: Reasons,
) -> tuple[CapacityDecision, ...]:
    """What to buy and to give back now. State is the same when this returns. `waits`: why each class waits, as the
    scheduler has it."""
    if state.cluster is None or state.recovering:
        return ()
    run = _open(state, offers, policy, now_us, reporter)
    give_back.those_that_do_not_boot(
        run
    )  # 1 first: what they were to be may be bought elsewhere in this very pass
    _cover_what_waits(run, work_budget, waits)  # 2 in queue order, each on what those before it leave
    _keep_floors(run)  # 3 after work: it needs the same offerings more
    renew.what_the_file_wants_otherwise(run)  # 4 last: what is booked now is known
    give_back.what_nobody_needs(run)
    return tuple(run.decisions)


def _open(
    state: State, offers: tuple[Offer, ...], policy: Policy, now_us: int, reporter: CapacityReporter
) -> Pass:
    by_pool: dict[str, tuple[Offer, ...]] = {}
    for offer in offers:
        by_pool[offer.key.pool] = (*by_pool.get(offer.key.pool, ()), offer)
    pools = [pool for pool in (state.cluster.pools if state.cluster else ()) if pool.size is not None]
    run = Pass(
        state=state,
        offers=by_pool,
        policy=policy,
        now_us=now_us,
        reporter=reporter,
        room=survey(state, policy.outdated),
        purse=open_purse(state, policy, now_us),
        pools=pools,
        sizes={pool.name: 0 for pool in pools},
        circuits=dict(state.circuits),
        boot_failures=dict(state.boot_failures),
    )
    run.names = dict.fromkeys(state.nodes, True)
    for fleet in state.fleets.values():
        intent = fleet.intent
        run.sizes[intent.pool] = run.sizes.get(intent.pool, 0) + (len(fleet.instances) or len(intent.nodes))
        run.names.update((name, True) for name in intent.nodes)
        if fleet.asked:
            run.launches[intent.offering] = run.launches.get(intent.offering, 0) + 1
    return run


# --- what waits -----------------------------------------------------------------------------------------------


def _cover_what_waits(run: Pass, work_budget: int, waits: Reasons) -> None:
    """Each waiting gang gets what is there and comes, or is bought the rest; it debits limits for those behind it."""
    debits: list[tuple[str, Amounts]] = []
    blocked: dict[ClassKey, bool] = {}
    try:
        for key, job in islice(_in_order(run, waits, blocked), work_budget):
            if not _cover(run, key, job, debits):
                blocked[key] = True
    finally:
        for scope, amounts in reversed(debits):
            run.state.limits.release(scope, amounts)


def _in_order(run: Pass, waits: Reasons, blocked: Mapping[ClassKey, bool]) -> Iterator[tuple[ClassKey, Job]]:
    """Jobs that more nodes would help, by priority, then id, over all classes; of a class that `blocked` gets meanwhile
    no more, so that it costs those behind it one probe however many jobs it has."""
    classes = [found for key, found in run.state.classes.items() if _more_nodes_help(waits.get(key))]
    heads = [(found.waiting[0], number, 0) for number, found in enumerate(classes)]
    heapq.heapify(heads)
    while heads:
        place, number, at = heapq.heappop(heads)
        found = classes[number]
        yield found.key, run.state.jobs[place.job]
        if found.key not in blocked and at + 1 < len(found.waiting):
            heapq.heappush(heads, (found.waiting[at + 1], number, at + 1))


def _more_nodes_help(why: Reason | None) -> bool:
    return why is not None and why.code in MORE_NODES_HELP


def _cover(run: Pass, key: ClassKey, job: Job, debits: list[tuple[str, Amounts]]) -> bool:
    """Whether the job will have its nodes; else those of its class behind it will not either."""
    if job.spec.request.groups:
        return groups.cover(run, key, job, debits)
    need = need_of(job.spec)
    fitting = pools_for(run.state.cluster, job.spec) if run.state.cluster else ()
    pools = [pool for pool in fitting if pool.size is not None and market.could_hold(run, pool, need)]
    if not pools:
        return False
    scope = run.state.scope(job)
    amounts = {pool.name: _amounts(run, pool, job, need) for pool in pools}
    options: list[tuple[Pool, int]] = []
    refusals: list[market.Refusal] = []
    for pool in pools:
        over = run.state.limits.binding(scope, amounts[pool.name])
        if over is not None:
            refusals.append(market.Refusal(1, limit_reason(over)))
            continue
        taken, lacking = run.room.fit(pool.name, need)
        parts = run.purse.parts(job.spec.queue, taken, need)
        dear = run.purse.short(parts)
        if dear is not None:
            refusals.append(market.Refusal(1, limit_reason(dear)))
            continue
        if not lacking:
            run.purse.take_parts(parts)
            run.room.book(taken, need)
            debit(run, debits, scope, amounts[pool.name])
            if not all(spot.ready for spot, _ in taken):  # else the scheduler knows why it does not start
                run.reporter.class_blocked(key, market.coming_reason(pool, taken))
            return True
        options.append((pool, lacking))
    bought = _buy_for(run, job, options, refusals)
    if bought is None:
        for pool, _ in options:
            run.closed.setdefault(pool.name, job.id)
        run.reporter.class_blocked(key, min(refusals, key=lambda one: one.rank).why)
        return False
    pool, why = bought
    debit(run, debits, scope, amounts[pool.name])
    run.reporter.class_blocked(key, why)
    return True


def _amounts(run: Pass, pool: Pool, job: Job, need: Need) -> Amounts:
    milli = milli_of(run, pool, job.spec, need)
    return run.state.gang_amounts(milli, pool.name) + hours_of(run, job, milli)


def _buy_for(
    run: Pass, job: Job, options: list[tuple[Pool, int]], refusals: list[market.Refusal]
) -> tuple[Pool, Reason] | None:
    """Buy what the gang lacks in the first pool where that can be had whole. Pools that a gang before it could not buy
    in stay closed to it, so that the order is kept."""
    need = need_of(job.spec)
    for pool, lacking in options:
        if pool.name in run.closed:
            ahead = run.closed[pool.name]
            refusals.append(market.Refusal(3, reason("wait.order", pool=pool.name, ahead=ahead)))
            continue
        until_us = job_ends_us(run.state, run.policy, pool, job.spec, run.now_us)
        there = run.purse.parts(job.spec.queue, run.room.fit(pool.name, need)[0], need)
        run.purse.take_parts(there)
        found = market.choose(run, pool, ((need, lacking),), job.spec.queue, until_us)
        if isinstance(found, market.Refusal):
            run.purse.take_parts(there, -1)
            refusals.append(found)
            continue
        buy(run, pool, found, job, until_us)
        taken, _ = run.room.fit(pool.name, need)
        run.room.book(taken, need)
        words = f"{found.count} of them are being bought ({found.offer.key.words()})"
        return pool, reason("wait.booting", nodes=len(taken), pool=pool.name, words=words)
    return None


# --- floors ---------------------------------------------------------------------------------------------------


def _keep_floors(run: Pass) -> None:
    """Nodes below `size.min` are bought one by one, as fast as their offering's launch budget lets."""
    for pool in run.pools:
        lacking = floor_of(pool) - give_back.staying(run, pool)
        while lacking > 0 and pool.name not in run.closed:
            found = market.choose(run, pool, (), "", run.policy.month_ends_us)
            if isinstance(found, market.Refusal):
                break
            buy(run, pool, found, None, run.policy.month_ends_us)
            lacking -= 1
