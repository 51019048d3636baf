"""Starting the first job of a cell, or leaving the cell alone.

Comes in: the pass, whose turn it is, the pools that limits leave open. Goes out: a decision, or a closed shape and
nodes kept. Called by: cycle.
"""

from __future__ import annotations

from orchestrator.ledger.capacity import FAR
from orchestrator.ledger.spending import USD
from orchestrator.ledger.state import State, amounts, milli_of
from orchestrator.model.attempt import Placement
from orchestrator.model.clock import SECOND
from orchestrator.model.decisions import Start
from orchestrator.model.ids import AttemptId
from orchestrator.model.reasons import reason
from orchestrator.scheduler import groups, hours, keeping, place
from orchestrator.scheduler.grouped import Grouped
from orchestrator.scheduler.one_pass import Pass
from orchestrator.scheduler.order import Line
from orchestrator.scheduler.shapes import Shape
from orchestrator.scheduler.spend import Money, Paid


def open_pools(run: Pass, line: Line, cell: int, guaranteed: bool) -> tuple[str, ...]:
    """The pools where limits let the first gang of the cell start, in the order of the file; of budgets, on the
    cheapest nodes there."""
    shape = line.shapes[cell]
    pools = hours.within(run, line, cell, shape, _open_pools(run, line, shape, guaranteed))
    paid = run.memory.paid(run.state) if line.money and pools else None
    if paid is None:
        return pools
    money, rows = _money(run, line, paid), run.memory.rows()
    least = {pool: paid.least(money, shape, run.memory.totals, rows, pool) for pool in pools}
    return tuple(pool for pool in pools if money.binding(least[pool]) is None)


def _open_pools(run: Pass, line: Line, shape: Shape, guaranteed: bool) -> tuple[str, ...]:
    if isinstance(shape, Grouped):
        return groups.open_ways(run, line, shape, guaranteed)
    if not line.bounds and not guaranteed:
        return shape.pools
    found = [
        pool
        for pool in shape.pools
        if run.state.limits.binding(line.scope, run.state.gang_amounts(shape.milli_in(pool), pool)) is None
    ]
    if guaranteed:  # others of the queue may have taken it since the line was looked at
        numbers, bounds = run.memory.lines.pools, line.branch.guarantee()
        found = [
            pool
            for pool in found
            if any(numbers[pool] in bound.pools and bound.left() >= shape.milli_in(pool) for bound in bounds)
        ]
    return tuple(found)


def try_start(run: Pass, line: Line, cell: int, pools: tuple[str, ...], *, may_keep: bool) -> bool:
    """Start the first job of the cell in one of these pools, or leave the cell alone for the rest of the round."""
    shape = line.shapes[cell]
    if pools and not run.out[shape.number]:
        if isinstance(shape, Grouped):
            chosen = groups.find(run.state, run.memory, shape, pools)
        else:
            chosen = place.find(run.state, run.memory, shape, pools)
        if chosen is not None:
            chosen = _within_budgets(run, line, shape, pools, chosen)
            if chosen is not None:
                return _start(run, line, cell, shape, chosen)
            line.stop(cell)
            return False
        if len(pools) == len(shape.pools):
            _close(run, shape)
    line.stop(cell)
    keeping.keep_bought(run, line, cell, shape)
    if run.keeps and pools and may_keep:
        keeping.keep_for(run, line, cell, shape, pools)
    return False


def _money(run: Pass, line: Line, paid: Paid) -> Money:
    """What the line may still commit of its budgets."""
    scopes = run.state.limits.scopes
    return paid.money(line.money, lambda name: scopes[name].used.get(USD, 0))


def _within_budgets(
    run: Pass, line: Line, shape: Shape, pools: tuple[str, ...], chosen: place.Chosen
) -> place.Chosen | None:
    """The place, if budgets pay for it; else the cheaper one where they do, or None."""
    paid = run.memory.paid(run.state) if line.money else None
    if paid is None:
        return chosen
    money = _money(run, line, paid)
    gang = groups.by_shape(shape, chosen) if isinstance(shape, Grouped) else [(shape, chosen)]
    costs = money.takes((one, place.as_candidates(rows)) for one, rows in gang)
    if money.binding(costs) is None:
        return chosen
    if isinstance(shape, Grouped):
        return groups.find(run.state, run.memory, shape, pools, money)
    return place.find(run.state, run.memory, shape, pools, money)


def _close(run: Pass, shape: Shape) -> None:
    """It fits nowhere, and within a pass space only shrinks: neither it nor what is no easier is tried again."""
    harder = run.memory.no_easier(shape)
    run.news = run.news or not run.memory.closed[harder].all()
    run.memory.closed[harder] = True
    run.memory.closed[run.awaited] = False  # each job that nodes were bought for has its own kept
    run.out[harder] = True


def _start(run: Pass, line: Line, cell: int, shape: Shape, chosen: place.Chosen) -> bool:
    state, found = run.state, line.classes[cell]
    job = state.jobs[line.job(cell)]
    parts = _placements(state, shape, chosen)
    address, port = place.rendezvous(state, job.spec, job.id, parts)
    if port < 0:
        first, last = place.port_range(state, parts)
        run.told[found.key] = reason("wait.ports", address=address, first=first, last=last)
        line.stop(cell)
        return False
    limit_s = run.policy.time_limit_s(state, job.spec)
    until_us = run.now_us + limit_s * SECOND if limit_s else FAR
    pool = state.capacity.pool_of[chosen[0][0]]
    known = shape.milli and not shape.need.exclusive and not parts[-1].group
    wanted = state.gang_amounts(shape.milli, pool) if known else amounts(state, parts)
    wanted += hours.asked(run, line, cell, milli_of(parts)) if line.hours else ()
    run.statement.take(line.scope, parts, wanted, address, port, until_us)
    line.start(cell)
    run.decisions.append(Start(AttemptId(job.id, job.attempts + 1), parts, address, port, limit_s))
    return True


def _placements(state: State, shape: Shape, chosen: place.Chosen) -> tuple[Placement, ...]:
    if isinstance(shape, Grouped):
        return groups.placements(state, shape, chosen)
    return place.placements(state, shape, chosen)
