"""Nodes kept for a blocked job: where it could start first, and nobody behind it may take what is free there.

Comes in: State as the pass has changed it, a shape, what is kept already. Goes out: placements of what is free now of
the nodes that it waits for. Called by: cycle, for the first few blocked jobs of a pass.

A device is free when its work ends at the latest. A gang waits in the domain where the last device that it needs is
free first; ties go to the lower domain, then the lower row. Nothing of it is promised: the next pass chooses anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import FAR, WHOLE, Capacity, Flags, Rows
from orchestrator.ledger.state import State
from orchestrator.model.attempt import Placement
from orchestrator.scheduler.domains import Candidates
from orchestrator.scheduler.ends import GONE, Ends, Times
from orchestrator.scheduler.memory import Memory
from orchestrator.scheduler.place import pick, segments_of, span_of
from orchestrator.scheduler.shapes import Shape


def nodes_for(
    state: State, memory: Memory, shape: Shape, pools: tuple[str, ...], kept: Flags
) -> list[tuple[int, int]]:
    """The rows of these pools that the gang waits for, with the units for each; empty if it could not run even if
    nothing else did. Rows that are kept for others (flags by row) are left to them."""
    best: tuple[int, list[tuple[int, int]]] | None = None
    for pool in pools:
        rows, units = shape.homes(state.capacity, pool, memory.rows_of(pool))
        able = (units > 0) & state.capacity.open[rows] & ~kept[rows]
        rows, units = rows[able], units[able]
        span = span_of(memory, shape, pool)
        if int(units.sum()) < shape.need.units:
            continue
        times = times_of(state.capacity, memory.ends, shape, rows)
        levels = memory.topology.levels.get(pool, ())
        of = levels[span.last].of[rows] if span.last < len(levels) else np.zeros(len(rows), np.int32)
        sets = memory.software[rows]
        of = np.where(of >= 0, of * (int(sets.max(initial=0)) + 1) + sets, of)  # a gang's nodes are alike
        if segments_of(memory, shape, pool) is None:
            found = _first(rows, units, times, of, shape.need.units)
        else:
            found = _first_in_segments(memory, shape, pool, rows, units, times)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return best[1] if best is not None else []


def times_of(capacity: Capacity, ends: Ends, shape: Shape, rows: Rows) -> Times:
    """When each row has the devices of a unit free; of a node that is to be nobody else's, when it is empty, as far as
    its devices tell."""
    if shape.need.exclusive:
        until = np.where(capacity.milli[rows] == WHOLE, 0, capacity.until_us[rows])
        until = np.where(capacity.there[rows], until, 0).max(axis=1, initial=0)
        return np.where(capacity.parts[rows] == 0, 0, np.where(until > 0, until, FAR)).astype(np.int64)
    count = shape.whole or (1 if shape.need.shares else 0)
    if shape.mig is not None:
        return _times_of_instances(capacity, shape, rows)
    if not count:
        ready = capacity.free_cores[rows] >= shape.need.cores
        ready &= not shape.plain or shape.plain_fits(capacity, rows)
        return np.where(ready, 0, FAR).astype(np.int64)
    return ends.of(capacity, rows, count)


def _times_of_instances(capacity: Capacity, shape: Shape, rows: Rows) -> Times:
    """The same for MIG instances: now where a unit fits, else when as many GPUs as it needs are empty."""
    found = [_time_of_instances(capacity, shape, row) for row in rows.tolist()]
    times = np.array(found, np.int64)
    times[shape.devices_fit(capacity, rows)] = 0
    return times


def _time_of_instances(capacity: Capacity, shape: Shape, row: int) -> int:
    gpus = -(-shape.need.gpus // shape.shares_of_one(capacity, row))
    until = np.where(capacity.milli[row] == WHOLE, 0, capacity.until_us[row])
    return int(np.sort(np.where(capacity.there[row], until, GONE))[gpus - 1])


def _first(
    rows: Rows, units: Times, times: Times, of: NDArray[np.int32], wanted: int
) -> tuple[int, list[tuple[int, int]]] | None:
    """The domain where so many units are free first, and the rows there that are; None if no domain has as many."""
    if len(of) and (of == of[0]).all():
        return _first_of_one(rows, units, times, wanted) if of[0] >= 0 else None
    inside = of >= 0
    rows, units, times, of = rows[inside], units[inside], times[inside], of[inside]
    order = np.lexsort((times, of))  # and by row: they ascend, and equal ones stay as they are
    of, running = of[order], np.cumsum(units[order])
    starts = np.flatnonzero(np.append(True, of[1:] != of[:-1])) if len(of) else np.zeros(0, np.int64)
    before = np.where(starts > 0, running[starts - 1], 0)
    ends = np.append(starts[1:], len(of))
    last = np.searchsorted(running, before + wanted)
    enough = np.flatnonzero(last < ends)
    if not len(enough):
        return None
    done = times[order[last[enough]]]
    pick = enough[int(np.argmin(done))]
    return int(done.min()), _dealt(rows, units, order[starts[pick] : last[pick] + 1], wanted)


def _first_of_one(
    rows: Rows, units: Times, times: Times, wanted: int
) -> tuple[int, list[tuple[int, int]]] | None:
    """The same where all rows are in one domain, as in most pools."""
    if (
        len(times) > wanted
    ):  # each gives a unit at least: those that are free first are enough, with all that tie
        near = np.flatnonzero(times <= np.partition(times, wanted - 1)[wanted - 1])
        rows, units, times = rows[near], units[near], times[near]
    order = times.argsort(kind="stable")
    last = int(units[order].cumsum().searchsorted(wanted))
    if last == len(order):
        return None
    return int(times[order[last]]), _dealt(rows, units, order[: last + 1], wanted)


def _dealt(rows: Rows, units: Times, chosen: NDArray[np.intp], wanted: int) -> list[tuple[int, int]]:
    """The units that each of these rows gives: all it has, but for the last."""
    found, left = [], wanted
    for row, most in zip(rows[chosen].tolist(), units[chosen].tolist(), strict=True):
        found.append((row, min(most, left)))
        left -= most
    return sorted(found)


def _first_in_segments(
    memory: Memory, shape: Shape, pool: str, rows: Rows, units: Times, times: Times
) -> tuple[int, list[tuple[int, int]]] | None:
    """When so many whole segments are free first, and the rows that are; None if there are never as many."""
    steps = np.unique(times)
    low, high = 0, len(steps)
    best: Candidates | None = None
    while low < high:
        middle = (low + high) // 2
        ready = times <= steps[middle]
        none = np.zeros(int(ready.sum()), np.int32)
        found = pick(memory, shape, pool, Candidates(rows[ready], units[ready], none))
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    if best is None:
        return None
    return int(steps[low]), sorted(zip(best.rows.tolist(), best.units.tolist(), strict=True))


def free_part(capacity: Capacity, shape: Shape, row: int, units: int) -> Placement:
    """What the gang would take of a row, as far as it is free now: all that is, if the node is to be nobody else's."""
    need = shape.need
    if need.exclusive:
        return all_left(capacity, row)
    milli: tuple[int, ...] = ()
    if need.shares or need.mig:
        slots, milli = _shared(capacity, shape, row, units * max(need.gpus, 1))
    else:
        slots = capacity.nearest(row, need.gpus, units)
    cores, memory = int(capacity.free_cores[row]), int(capacity.free_memory[row])
    if shape.plain:
        cores = min(cores, int(capacity.plain_cores[row]))
        memory = min(memory, int(capacity.plain_memory[row]))
    return Placement(
        node=capacity.names[row],
        slots=slots,
        milli=milli,
        tasks=0,
        cores=min(need.cores * units, max(cores, 0)),
        memory=min(need.memory * units, max(memory, 0)),
    )


def all_left(capacity: Capacity, row: int) -> Placement:
    """All that is free of a row."""
    left = capacity.milli[row].tolist()
    slots = tuple(slot for slot, milli in enumerate(left) if milli)
    return Placement(
        node=capacity.names[row],
        slots=slots,
        milli=tuple(left[slot] for slot in slots),
        tasks=0,
        cores=max(int(capacity.free_cores[row]), 0),
        memory=max(int(capacity.free_memory[row]), 0),
    )


def _shared(
    capacity: Capacity, shape: Shape, row: int, units: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The devices that so many shares would need, those with most left first, and all that is left of them: the more it
    gets, the surer the next pass keeps the same ones."""
    devices = -(-units // shape.shares_of_one(capacity, row))
    left = capacity.milli[row].tolist()
    first = sorted((slot for slot, milli in enumerate(left) if milli), key=lambda slot: (-left[slot], slot))
    slots = tuple(sorted(first[:devices]))
    return slots, tuple(left[slot] for slot in slots)
