"""Nodes for gangs of unlike groups: along one way all that lacks is bought, or nothing is.

Comes in: a pass, a waiting job with groups. Goes out: decisions, in the pass; its reason. Called by: cycle.

A way is a pool for each group, all of one site; of those on which all can be bought it is the one that costs least an
hour. No node is for two groups of one gang. Groups that lack nodes of the same pool have them from one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.autoscale.buying import buy, debit, hours_of, milli_of
from orchestrator.autoscale.market import Refusal, Want, choose, coming_reason, could_hold
from orchestrator.autoscale.money import job_ends_us
from orchestrator.autoscale.room import Taken
from orchestrator.ledger.limits import Amounts, limit_reason
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import ClassKey
from orchestrator.model.cluster import Pool
from orchestrator.model.decisions import Buy, CapacityDecision
from orchestrator.model.job import JobSpec
from orchestrator.model.need import Need, gangs_of, need_of, pools_for, ways_of
from orchestrator.model.reasons import Reason, reason

if TYPE_CHECKING:
    from orchestrator.autoscale.cycle import Pass


class Group(NamedTuple):
    """One group of the gang, and the pool that it has on this way."""

    gang: JobSpec
    need: Need
    pool: Pool


Way = tuple[Group, ...]


class Covered(NamedTuple):
    """The gang has its nodes; `why` it does not run yet, where the scheduler would not know."""

    why: Reason | None


class Short(NamedTuple):
    """What it lacks of the pool could not be bought, or (no pool) it may not have what is there."""

    refusal: Refusal
    pool: str = ""


def cover(run: Pass, key: ClassKey, job: Job, debits: list[tuple[str, Amounts]]) -> bool:
    """Whether the gang will have its nodes; else those of its class behind it will not either."""
    scope, short, found = run.state.scope(job), list[Short](), dict[int, int]()
    ways = [(way, _amounts(run, job, way)) for way in _ways(run, job.spec)]
    overs = [run.state.limits.binding(scope, amounts) for _, amounts in ways]
    for buying in (False, True):  # nothing is bought while there is a way that lacks nothing
        for number, (way, _) in enumerate(ways):
            if overs[number] is None:
                undo, made = _undo(run, way), len(run.decisions)
                trial = _along(run, job, way, buying)
                if isinstance(trial, Covered):
                    found[number] = sum(_price(one) for one in run.decisions[made:])
                elif trial is not None:
                    short.append(trial)
                undo()
        if found:  # the cheapest way, and of equal ones the first
            way, amounts = ways[min(found, key=lambda number: found[number])]
            covered = _along(run, job, way, buying)
            debit(run, debits, scope, amounts)
            if isinstance(covered, Covered) and covered.why is not None:
                run.reporter.class_blocked(key, covered.why)
            return True
    run.closed = {one.pool: job.id for one in short if one.pool} | run.closed
    short += [Short(Refusal(1, limit_reason(over))) for over in overs if over is not None]
    if short:
        run.reporter.class_blocked(key, min((one.refusal for one in short), key=lambda one: one.rank).why)
    return False


def _amounts(run: Pass, job: Job, way: Way) -> Amounts:
    """What limits will count of the gang."""
    shares = [(milli_of(run, one.pool, one.gang, one.need), one.pool.name) for one in way]
    return run.state.mixed_amounts(shares) + hours_of(run, job, sum(milli for milli, _ in shares))


def _price(one: CapacityDecision) -> int:
    """Micro-dollars an hour."""
    return one.offer.price * len(one.nodes) if isinstance(one, Buy) else 0


def _ways(run: Pass, spec: JobSpec) -> Iterator[Way]:
    """Those on which something can be bought, in the order of the file."""
    cluster = run.state.cluster
    if cluster is None:
        return
    gangs = gangs_of(spec)
    needs = [need_of(gang) for gang in gangs]
    suiting = [
        [pool.name for pool in pools_for(cluster, gang) if pool.size is None or could_hold(run, pool, need)]
        for gang, need in zip(gangs, needs, strict=True)
    ]
    pools = {pool.name: pool for pool in cluster.pools}
    for names in ways_of({name: pool.site for name, pool in pools.items()}, suiting):
        if any(pools[name].size is not None for name in names):
            parts = zip(gangs, needs, names, strict=True)
            yield tuple(Group(gang, need, pools[name]) for gang, need, name in parts)


def _along(run: Pass, job: Job, way: Way, buying: bool) -> Covered | Short | None:
    """Book what is there and comes for each group and, if it may be, buy the rest. None: it lacks nodes that are not
    bought, now or ever, and the scheduler's own reason says which. What was booked is for the caller to undo."""
    used: dict[str, bool] = {}
    lacking: dict[str, list[Want]] = {}
    coming: dict[str, Taken] = {}
    for one in way:
        if one.pool.size is None:
            run.room.stand(run.state, one.pool.name)
        taken, left = run.room.fit(one.pool.name, one.need, used)
        if left and (one.pool.size is None or not buying):
            return None
        dear = _book(run, job, one.need, taken, used)
        if dear is not None:
            return dear
        coming.setdefault(one.pool.name, []).extend(taken)
        if left:
            lacking.setdefault(one.pool.name, []).append((one.need, left))
    bought: Reason | None = None
    for pool in dict.fromkeys(one.pool for one in way if one.pool.name in lacking):
        found = _buy_in(run, job, pool, lacking[pool.name], used)
        if isinstance(found, Short):
            return found
        bought = bought or found
    return Covered(bought or _comes(way, coming))


def _book(run: Pass, job: Job, need: Need, taken: Taken, used: dict[str, bool]) -> Short | None:
    """Take these for a group, unless a budget of the queue is passed."""
    parts = run.purse.parts(job.spec.queue, taken, need)
    dear = run.purse.short(parts)
    if dear is not None:
        return Short(Refusal(1, limit_reason(dear)))
    run.purse.take_parts(parts)
    run.room.book(taken, need)
    used.update((spot.node, True) for spot, _ in taken)
    return None


def _buy_in(run: Pass, job: Job, pool: Pool, wants: list[Want], used: dict[str, bool]) -> Short | Reason:
    """One launch for all that the groups lack of a pool."""
    if pool.name in run.closed:
        return Short(Refusal(3, reason("wait.order", pool=pool.name, ahead=run.closed[pool.name])))
    until_us = job_ends_us(run.state, run.policy, pool, job.spec, run.now_us)
    found = choose(run, pool, tuple(wants), job.spec.queue, until_us)
    if isinstance(found, Refusal):
        return Short(found, pool.name)
    buy(run, pool, found, job, until_us)
    for need, units in wants:
        taken, _ = run.room.fit(pool.name, need._replace(units=units), used)
        run.room.book(taken, need)
        used.update((spot.node, True) for spot, _ in taken)
    words = f"they are being bought ({found.offer.key.words()})"
    return reason("wait.booting", nodes=found.count, pool=pool.name, words=words)


def _comes(way: Way, coming: dict[str, Taken]) -> Reason | None:
    """How far the nodes are in the first pool where some boot."""
    for pool in dict.fromkeys(one.pool for one in way):
        if not all(spot.ready for spot, _ in coming[pool.name]):
            return coming_reason(pool, coming[pool.name])
    return None


def _undo(run: Pass, way: Way) -> Callable[[], None]:
    """What takes back all that is done along the way from now on."""
    made, sizes, launches = len(run.decisions), dict(run.sizes), dict(run.launches)
    hourly, monthly = dict(run.purse.hourly), dict(run.purse.monthly)
    names = dict.fromkeys(one.pool.name for one in way)
    spots = {
        name: [replace(spot) for spot in run.room.pools[name]] for name in names if name in run.room.pools
    }

    def undo() -> None:
        for one in run.decisions[made:]:
            for name in one.nodes if isinstance(one, Buy) else ():
                del run.names[name]
        del run.decisions[made:]
        run.sizes, run.launches = sizes, launches
        run.purse.hourly, run.purse.monthly = hourly, monthly
        for name in names:
            run.room.pools.pop(name, None)
        run.room.pools.update(spots)

    return undo
