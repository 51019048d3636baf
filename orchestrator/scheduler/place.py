"""Where a gang goes now, with exact device slots.

Comes in: State (as the pass has changed it so far), a shape, the pools that are open to it. Goes out: the rows that it
takes with their units, placements in gang order, a rendezvous port. Called by: cycle.

A gang stays within one pool, on nodes with the same software and one job network. Of pools that take it, the one where
it costs least comes first, then the order of the file. Equal states give equal placements: the last tie rule is the
row.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import numpy as np

from orchestrator.ledger.capacity import Capacity, Rows
from orchestrator.ledger.power import Headroom
from orchestrator.ledger.state import State
from orchestrator.model.attempt import Placement
from orchestrator.model.job import JobSpec, LaunchKind
from orchestrator.model.need import Need, devices_of, gangs_of, need_of, pools_for
from orchestrator.scheduler import segments, waste
from orchestrator.scheduler.domains import Candidates, choose
from orchestrator.scheduler.memory import Memory
from orchestrator.scheduler.segments import Segments
from orchestrator.scheduler.shapes import NO_ROOM, Costs, Shape, milli_of
from orchestrator.scheduler.spend import Money, choose_paid
from orchestrator.scheduler.watts import Within, choose_within, new_gpus

Chosen = list[tuple[int, int]]  # rows in gang order, and the units that each gives


class Levels(NamedTuple):
    """The levels between which a gang looks for a domain: `last` past all of them means that none is required."""

    first: int
    last: int


def find(
    state: State, memory: Memory, shape: Shape, pools: tuple[str, ...], money: Money | None = None
) -> Chosen | None:
    """Rows for the whole gang in one of these pools, or None; as far as `money` goes, where it may be short. A shape
    that fitted nowhere as the last pass ended fits where more is free since, or not at all."""
    number, one = shape.number, shape.need.units == 1
    asleep = bool(memory.asleep[number]) and len(pools) == len(shape.pools)
    doubtful = not one if asleep else memory.closed[number]  # counting takes a tenth of the time of costing
    if doubtful and not _may_fit(state.capacity, memory, shape, pools, asleep):
        return None
    if one:
        row = _row_for_one(state, memory, shape, pools, money, memory.grown(shape) if asleep else None)
        return None if row is None else [(row, 1)]
    best: tuple[int, Chosen] | None = None
    for pool in pools:
        found = candidates(state, memory, shape, pool)
        if not len(found.rows):
            continue
        within = Within(state.power.room, state.capacity) if state.power is not None else None
        chosen = pick(memory, shape, pool, found, within=within, money=money)
        if chosen is None:
            continue
        cost = int(chosen.costs.astype(np.int64).sum())
        if best is None or cost < best[0]:
            order = _gang_order(memory, shape, pool, chosen)
            best = cost, list(zip(chosen.rows[order].tolist(), chosen.units[order].tolist(), strict=True))
    return best[1] if best is not None else None


def _may_fit(capacity: Capacity, memory: Memory, shape: Shape, pools: tuple[str, ...], asleep: bool) -> bool:
    """Whether some pool has as many units free as the gang wants, wherever they are; if it was asleep, one of them
    where more is free than was."""
    if asleep and not shape.units_on(capacity, memory.grown(shape)).any():
        return False
    homes = (shape.homes(capacity, pool, memory.rows_of(pool))[0] for pool in pools)
    return any(int(shape.units_on(capacity, rows).sum()) >= shape.need.units for rows in homes)


def as_candidates(chosen: Chosen) -> Candidates:
    """The same as arrays, without costs."""
    rows, units = (np.array(column, np.int64) for column in zip(*chosen, strict=True))
    return Candidates(rows, units, np.zeros(len(rows), np.int32))


def _row_for_one(
    state: State,
    memory: Memory,
    shape: Shape,
    pools: tuple[str, ...],
    money: Money | None,
    few: Rows | None,
) -> int | None:
    """The row where a lone unit costs least: one of a few, or of all of these pools."""
    capacity = state.capacity
    costs = shape.sync(capacity) if few is None else shape.costs_on(capacity, few)
    if state.power is not None and shape.lights:
        costs = _affordable(state.power.room, capacity, shape, costs, few)
    if money is not None:
        costs = _paid(money, shape, costs, few)
    if few is None:
        return _cheapest(memory, costs, shape, pools)
    at = int(costs.argmin()) if len(few) else -1
    return int(few[at]) if at >= 0 and costs[at] < NO_ROOM else None


def _affordable(room: Headroom, capacity: Capacity, shape: Shape, costs: Costs, few: Rows | None) -> Costs:
    """The costs of a few rows, or of all, but for those whose power domains do not carry what a unit would light."""
    able = np.flatnonzero(costs < NO_ROOM)
    rows = able if few is None else few[able]
    dark = room.gpus(rows) < new_gpus(shape, capacity, rows, np.ones(len(rows), np.int64))
    costs = costs.copy()
    costs[able[dark]] = NO_ROOM
    return costs


def _paid(money: Money, shape: Shape, costs: Costs, few: Rows | None) -> Costs:
    """The same, but for rows where a unit would pass a budget."""
    able = np.flatnonzero(costs < NO_ROOM)
    costs = costs.copy()
    costs[able[money.too_dear(shape, able if few is None else few[able])]] = NO_ROOM
    return costs


def pick(
    memory: Memory,
    shape: Shape,
    pool: str,
    found: Candidates,
    *,
    alike: bool = True,
    within: Within | None = None,
    money: Money | None = None,
) -> Candidates | None:
    """Of these rows of a pool those that the gang takes, close together as it wants it and of one set of software; None
    if it can't have that. Not `alike`: whatever software they have. `within`, `money`: as far as those go."""
    sets = memory.software[found.rows]
    if alike and shape.need.units > 1 and len(sets) and (sets != sets[0]).any():
        return _of_one_set(memory, shape, pool, found, within, money)
    levels = tuple(level.of for level in memory.topology.levels.get(pool, ()))
    span, parts = span_of(memory, shape, pool), segments_of(memory, shape, pool)

    def choosing(some: Candidates) -> Candidates | None:
        if parts is None:
            return choose(some, shape.need.units, levels, *span)
        return segments.choose(some, shape.need.units, levels, *span, parts)

    home = levels[span.last] if span.last < len(levels) else None

    def powered(some: Candidates) -> Candidates | None:
        if within is None or not shape.lights:
            return choosing(some)
        return choose_within(within, shape, some, choosing, home)

    return powered(found) if money is None else choose_paid(money, shape, found, powered, home)


def _of_one_set(
    memory: Memory,
    shape: Shape,
    pool: str,
    found: Candidates,
    within: Within | None,
    money: Money | None,
) -> Candidates | None:
    """While a change goes through a pool its nodes differ: the set where the gang costs least, then that of the first
    node."""
    sets, best = memory.software[found.rows], None
    for number in dict.fromkeys(sets.tolist()):
        chosen = pick(memory, shape, pool, found.of(sets == number), within=within, money=money)
        cost = int(chosen.costs.astype(np.int64).sum()) if chosen is not None else 0
        if chosen is not None and (best is None or cost < best[0]):
            best = cost, chosen
    return best[1] if best is not None else None


def segments_of(memory: Memory, shape: Shape, pool: str) -> Segments | None:
    """How the gang falls into segments there; None if it is in one piece, or they need not stand closer than all of it:
    within a site it stays anyway."""
    wish = shape.key.topology
    level = memory.topology.at(pool, wish.segment_level) if wish.segment_nodes else -1
    return Segments(level, wish.segment_nodes) if level >= 0 else None


def _gang_order(memory: Memory, shape: Shape, pool: str, chosen: Candidates) -> Rows:
    parts = segments_of(memory, shape, pool)
    if parts is None:
        return np.argsort(chosen.rows, kind="stable")
    return segments.in_order(chosen, tuple(level.of for level in memory.topology.levels[pool]), parts)


def _cheapest(memory: Memory, costs: np.ndarray, shape: Shape, pools: tuple[str, ...]) -> int | None:
    """The row where a lone unit costs least."""
    if len(pools) == len(shape.pools):
        row = int(costs.argmin())
        return row if costs[row] < NO_ROOM else None
    best: tuple[int, int] | None = None
    for pool in pools:
        rows = memory.rows_of(pool)
        row = int(rows[costs[rows].argmin()])
        if costs[row] < NO_ROOM and (best is None or costs[row] < best[0]):
            best = int(costs[row]), row
    return best[1] if best is not None else None


def candidates(state: State, memory: Memory, shape: Shape, pool: str) -> Candidates:
    """The rows of a pool that take at least one unit now."""
    rows = memory.rows_of(pool)
    costs = shape.sync(state.capacity)[rows]
    ok = costs < NO_ROOM
    rows, costs = rows[ok], costs[ok]
    units = np.ones(len(rows), np.int64) if shape.need.spread else shape.units_on(state.capacity, rows)
    return Candidates(rows, units, costs)


def span_of(memory: Memory, shape: Shape, pool: str) -> Levels:
    """The levels in which the gang looks for a domain; its pools have the one that it requires."""
    topology, wish = memory.topology, shape.key.topology
    count = len(topology.levels.get(pool, ()))
    last = topology.at(pool, wish.required)
    if last < 0:
        last = count
    first = max(topology.at(pool, wish.preferred), 0) if wish.preferred else topology.innermost(pool)
    return Levels(min(first, last), last)


def placements(state: State, shape: Shape, chosen: Chosen) -> tuple[Placement, ...]:
    """Devices for each row, those of a unit close to each other; shares as `_shares` says; all of a node that is nobody
    else's."""
    need, capacity = shape.need, state.capacity
    if shape.mig is not None:
        lit_first, weights = state.power is not None, shape.scale.mig
        parts = tuple(
            shape.mig.take(capacity, row, units, weights, lit_first=lit_first) for row, units in chosen
        )
    elif need.shares:
        parts = tuple(_shares(state, shape, row, units) for row, units in chosen)
    else:
        parts = tuple(
            Placement(
                node=capacity.names[row],
                slots=capacity.nearest(row, need.gpus, units),
                tasks=need.tasks * units,
                cores=need.cores * units,
                memory=need.memory * units,
            )
            for row, units in chosen
        )
    return tuple(capacity.all_of(part) for part in parts) if need.exclusive else parts


def _shares(state: State, shape: Shape, row: int, units: int) -> Placement:
    """Each unit's share on one device: the fullest that still takes it, then the lowest slot."""
    need, capacity = shape.need, state.capacity
    free = capacity.milli[row].tolist()
    free_hand = units == 1 and state.power is None  # else first those that draw power already
    first = waste.slots(shape.scale.tables, capacity, shape.ask, row) if free_hand else ()
    left_bytes = capacity.device_bytes[row].tolist()
    counts: dict[int, int] = {}
    for _ in range(units):
        slot = first[0] if first else _fullest(need, free, left_bytes)
        free[slot] -= need.milli or 1  # by memory, whoever comes next needs one thousandth at least
        left_bytes[slot] -= need.device_bytes
        counts[slot] = counts.get(slot, 0) + 1
    slots = tuple(sorted(counts))
    return Placement(
        node=capacity.names[row],
        slots=slots,
        tasks=need.tasks * units,
        cores=need.cores * units,
        memory=need.memory * units,
        milli=tuple(_milli_on(capacity, need, row, slot, counts[slot]) for slot in slots),
        device_bytes=tuple(need.device_bytes * counts[slot] for slot in slots),
    )


def _fullest(need: Need, free: list[int], left_bytes: list[int]) -> int:
    """The device with the least left of those that take one more share, then the lowest slot."""
    able = (at for at, milli in enumerate(free) if _takes(need, milli, left_bytes[at]))
    return min(able, key=lambda at: (free[at], left_bytes[at], at))


def _milli_on(capacity: Capacity, need: Need, row: int, slot: int, count: int) -> int:
    """What so many shares of one device take of it: by memory, their part of it, or what is left."""
    milli = need.milli or milli_of(need.device_bytes, int(capacity.device_memory[row, slot]))
    return min(milli * count, int(capacity.milli[row, slot]))


def _takes(need: Need, milli: int, left_bytes: int) -> bool:
    return milli >= max(need.milli, 1) and left_bytes >= need.device_bytes


# --- rendezvous -----------------------------------------------------------------------------------------------


def rendezvous(state: State, job: JobSpec, job_id: int, parts: tuple[Placement, ...]) -> tuple[str, int]:
    """Address and port for rank 0's rendezvous; port 0 if a lone process needs none, -1 if no port is free.

    The search starts at a place that depends on the job, so that a port is not used again at once.
    """
    address = state.nodes[parts[0].node].address
    if job.launch is LaunchKind.RANKS and sum(part.tasks for part in parts) == 1:
        return address, 0
    first, last = port_range(state, parts)
    used = state.ports.get(address, {})
    span = last - first + 1
    for step in range(min(span, len(used) + 1)):
        port = first + (job_id + step) % span
        if port not in used:
            return address, port
    return address, -1


def port_range(state: State, parts: tuple[Placement, ...]) -> tuple[int, int]:
    """First and last port of the job network at the gang's site."""
    pool = state.pool(state.nodes[parts[0].node].pool)
    if pool is None or state.cluster is None:
        raise ValueError(f"node {parts[0].node} is in no pool of the cluster")
    network = state.cluster.site_of(pool).network
    return network.first_port, network.last_port


def could_fit(state: State, spec: JobSpec, without: Container[str]) -> bool:
    """Whether the open nodes of some pool, less these, would take the gang if nothing else ran."""
    if spec.request.groups:
        return all(could_fit(state, gang, without) for gang in gangs_of(spec))
    need, capacity = need_of(spec), state.capacity
    for pool in pools_for(state.cluster, spec) if state.cluster else ():
        rows: Rows = np.array(capacity.pools.get(pool.name, ()), np.int64)
        rows = np.array([row for row in rows if capacity.names[row] not in without], np.int64)
        if not len(rows):
            continue
        rows = rows[capacity.open[rows]]
        each = (
            need.units_on(
                devices_of(pool, need, int(capacity.gpus[row])),
                int(capacity.cores[row]),
                int(capacity.memory[row]),
            )
            for row in rows
        )
        if sum(each) >= need.units:
            return True
    return False
