"""Keeping nodes for a blocked job until the pass ends: nobody behind it may take what is free there, nor its limits.

Comes in: the pass, a job that could not start. Goes out: what is kept, taken through the pass's statement. Called by:
starting. Which nodes these are is said in earliest.
"""

from __future__ import annotations

import numpy as np

from orchestrator.ledger.capacity import Flags
from orchestrator.ledger.limits import Amounts
from orchestrator.model.attempt import Placement
from orchestrator.scheduler import earliest, groups, hours, why_groups
from orchestrator.scheduler.grouped import Grouped
from orchestrator.scheduler.one_pass import Kept, Pass
from orchestrator.scheduler.order import Line
from orchestrator.scheduler.shapes import Shape
from orchestrator.scheduler.why import Whereabouts, powered_when_empty


def keep_for(run: Pass, line: Line, cell: int, shape: Shape, pools: tuple[str, ...]) -> None:
    """Keep what is free of the nodes where the job could start first, and its limits, from all who come after it."""
    if isinstance(shape, Grouped):
        _keep_for_groups(run, line, cell, shape, pools)
        return
    state, memory = run.state, run.memory
    if state.power is not None:
        opened, where = state.capacity.open, Whereabouts(state, memory)
        pools = tuple(p for p in pools if powered_when_empty(where, shape, [p], state.power, opened))
        if not pools:
            return  # power would not carry it if nothing else ran: nobody is kept from nodes for its sake
    rows = earliest.nodes_for(state, memory, shape, pools, _flags(run, run.kept))
    if not rows and not (run.kept and earliest.nodes_for(state, memory, shape, pools, _flags(run, []))):
        _give_up(run, shape, pools)
        return
    run.blocked += 1
    if not rows:
        return  # those before it wait for the same nodes
    capacity = run.state.capacity
    parts: tuple[Placement, ...] = tuple(earliest.free_part(capacity, shape, *row) for row in rows)
    pool = capacity.pool_of[rows[0][0]]
    milli = shape.milli_in(pool)
    wanted = run.state.gang_amounts(milli, pool) + hours.asked(run, line, cell, milli)
    _take(run, line, cell, [row for row, _ in rows], parts, wanted)


def _keep_for_groups(run: Pass, line: Line, cell: int, shape: Grouped, ways: tuple[str, ...]) -> None:
    state = run.state
    if state.power is not None:
        opened, where = state.capacity.open, Whereabouts(state, run.memory)
        if not why_groups.powered_when_empty(where, shape, ways, state.power, opened):
            return  # as for equal gangs
    rows, certain = groups.nodes_for(run, shape, ways, _flags(run, run.kept))
    if not rows and run.kept:
        behind, certain = groups.nodes_for(run, shape, ways, _flags(run, []))
        run.blocked += bool(behind)  # those before it wait for the same nodes
        certain = certain and not behind
    if rows:
        run.blocked += 1
        parts = groups.free_parts(run, shape, rows)
        wanted = groups.amounts_of(run, shape, rows) + hours.asked(run, line, cell, shape.milli)
        _take(run, line, cell, [row for row, _ in rows], parts, wanted)
    elif certain:
        _give_up(run, shape, ways)


def _give_up(run: Pass, shape: Shape, pools: tuple[str, ...]) -> None:
    """It would not fit if nothing else ran: nobody of the shape is tried until more nodes open, but those that nodes
    were bought for, each of which has its own kept."""
    if len(pools) == len(shape.pools) and shape.number not in run.awaited:
        run.memory.hopeless[shape.number] = True


def keep_bought(run: Pass, line: Line, cell: int, shape: Shape) -> None:
    """Nodes that were bought for the job and are there already are kept for it until the intent's time is over."""
    state, job = run.state, line.job(cell)
    names = run.bought.get(job)
    if not names:
        return
    others = _flags(run, run.kept)
    capacity = state.capacity
    rows = [capacity.index[name] for name in names if name in capacity.index]
    rows = [row for row in rows if capacity.open[row] and not others[row]]
    if rows and isinstance(shape, Grouped):  # which group gets which is not decided yet
        _take(run, line, cell, rows, tuple(earliest.all_left(capacity, row) for row in rows), ())
    elif rows:
        units = shape.units_when_empty(capacity, np.array(rows, np.int64)).tolist()
        parts = tuple(
            earliest.free_part(capacity, shape, row, count) for row, count in zip(rows, units, strict=True)
        )
        _take(run, line, cell, rows, parts, ())


def _take(
    run: Pass, line: Line, cell: int, rows: list[int], parts: tuple[Placement, ...], wanted: Amounts
) -> None:
    run.statement.take(line.scope, parts, wanted)
    key = line.classes[cell].key
    run.kept.append(Kept(line.job(cell), key, tuple(rows), parts, line.scope, wanted))


def _flags(run: Pass, kept: list[Kept]) -> Flags:
    """The rows that are kept for these, as flags."""
    flags = np.zeros(len(run.state.capacity.open), bool)
    for one in kept:
        flags[list(one.rows)] = True
    return flags
