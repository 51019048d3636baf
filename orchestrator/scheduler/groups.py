"""Where a gang of unlike groups goes: all of it at once, within one domain, each group in one pool.

Comes in: State as the pass has changed it, a `Grouped` shape, the ways that limits leave open. Goes out: rows in gang
order, placements, nodes kept. Called by: starting, keeping.

A gang that is refused fits nowhere as long as `MOST_STEPS` last; where they don't, it may be refused although there is
a place, and it is never called hopeless for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from orchestrator.ledger.capacity import Flags
from orchestrator.ledger.state import State
from orchestrator.model.attempt import Placement
from orchestrator.scheduler import earliest, place
from orchestrator.scheduler.domains import Candidates
from orchestrator.scheduler.group_fitting import MOST_STEPS, carried, cost_of, paid, solutions
from orchestrator.scheduler.group_sharing import Found, Steps
from orchestrator.scheduler.grouped import Grouped
from orchestrator.scheduler.memory import Memory
from orchestrator.scheduler.one_pass import Pass
from orchestrator.scheduler.order import Line
from orchestrator.scheduler.place import Chosen
from orchestrator.scheduler.shapes import Shape
from orchestrator.scheduler.spend import Money
from orchestrator.scheduler.watts import Within

LATER_S = 1 << 30  # of a row that is free nobody knows when


# --- starting -------------------------------------------------------------------------------------------------


def open_ways(run: Pass, line: Line, shape: Grouped, guaranteed: bool) -> tuple[str, ...]:
    """The ways in which limits let the gang start. `guaranteed`: only with all its GPUs in pools of one that has
    as many left."""
    state = run.state
    found = [
        way
        for way in shape.pools
        if not line.bounds or state.limits.binding(line.scope, state.mixed_amounts(shape.shares(way))) is None
    ]
    if guaranteed:
        fitting = (bound for bound in line.branch.guarantee() if bound.left() >= shape.milli)
        own = [number for bound in fitting for number in bound.pools]
        numbers = run.memory.lines.pools
        found = [way for way in found if all(numbers[pool] in own for pool in _with_gpus(shape, way))]
    return tuple(found)


def _with_gpus(shape: Grouped, way: str) -> Iterator[str]:
    pairs = zip(shape.groups, shape.ways[way], strict=True)
    return (pool for one, pool in pairs if one.unit_milli)


def find(
    state: State, memory: Memory, shape: Grouped, ways: Iterable[str], money: Money | None = None
) -> Chosen | None:
    """Rows for all groups in one of these ways, in gang order, or None: the cheapest of the sites; as far as `money`
    goes, where it may be short."""

    def offers(group: int, pool: str) -> Candidates:
        return place.candidates(state, memory, shape.groups[group], pool)

    steps = Steps(MOST_STEPS)
    within = Within(state.power.room, state.capacity) if state.power is not None else None
    best: tuple[int, Found] | None = None
    for site in shape.by_site(ways):
        every = solutions(memory, shape, site, offers, steps)
        found = next((one for one in every if carried(within, shape, one) and paid(money, shape, one)), None)
        if found is not None and (best is None or cost_of(found) < best[0]):
            best = cost_of(found), found
    return _rows(best[1]) if best is not None else None


def _rows(found: Found) -> Chosen:
    chosen: Chosen = []
    for one in found:
        chosen += sorted(zip(one.rows.tolist(), one.units.tolist(), strict=True))
    return chosen


def by_group(shape: Grouped, chosen: Chosen) -> Iterator[tuple[int, Chosen]]:
    """Rows in gang order as those of each group, which are known by their units."""
    rest = iter(chosen)
    for group, one in enumerate(shape.groups):
        own: Chosen = []
        while sum(units for _, units in own) < one.need.units:
            own.append(next(rest))
        yield group, own


def by_shape(shape: Grouped, chosen: Chosen) -> Iterator[tuple[Shape, Chosen]]:
    """The same, with each group's shape."""
    return ((shape.groups[group], own) for group, own in by_group(shape, chosen))


def placements(state: State, shape: Grouped, chosen: Chosen) -> tuple[Placement, ...]:
    """Devices for each row, in gang order."""
    return tuple(
        replace(part, group=group)
        for group, own in by_group(shape, chosen)
        for part in place.placements(state, shape.groups[group], own)
    )


# --- keeping --------------------------------------------------------------------------------------------------


def nodes_for(run: Pass, shape: Grouped, ways: tuple[str, ...], kept: Flags) -> tuple[Chosen, bool]:
    """The rows that the gang waits for, with the units for each, in gang order: where the last device that it needs is
    free first. Empty if it could not run even if nothing else did, which the flag says to be certain."""
    steps = Steps(MOST_STEPS)

    def offers(group: int, pool: str) -> Candidates:
        return _empty(run, shape, group, pool, kept)

    best: tuple[int, Found] | None = None
    for site in shape.by_site(ways):
        for found in solutions(run.memory, shape, site, offers, steps, widest=True):
            last = max(int(one.costs.max()) for one in found)
            if best is None or last < best[0]:
                best = last, found
    return (_rows(best[1]) if best is not None else []), not steps.out


def _empty(run: Pass, shape: Grouped, group: int, pool: str, kept: Flags) -> Candidates:
    """What the rows would take if nothing ran there; the cost of one is in how many seconds it is free."""
    one, capacity = shape.groups[group], run.state.capacity
    rows = run.memory.rows_of(pool)
    rows = rows[one.eligible[rows] & capacity.open[rows] & ~kept[rows]]
    units = one.units_when_empty(capacity, rows)
    rows, units = rows[units > 0], units[units > 0]
    waits = (earliest.times_of(capacity, run.memory.ends, one, rows) - run.now_us) // 1_000_000
    return Candidates(rows, units, np.clip(waits, 0, LATER_S).astype(np.int32))


def free_parts(run: Pass, shape: Grouped, chosen: Chosen) -> tuple[Placement, ...]:
    """What the gang would take of these rows, as far as it is free now."""
    capacity = run.state.capacity
    return tuple(
        earliest.free_part(capacity, shape.groups[group], *row)
        for group, own in by_group(shape, chosen)
        for row in own
    )


def amounts_of(run: Pass, shape: Grouped, chosen: Chosen) -> tuple[tuple[str, int], ...]:
    """What the gang takes of limits on these rows."""
    pool_of = run.state.capacity.pool_of
    way = "+".join(pool_of[own[0][0]] for _, own in by_group(shape, chosen))
    return run.state.mixed_amounts(shape.shares(way))
