"""Why a shape does not fit what is free: the pool where it comes closest, and the numbers there.

Comes in: a snapshot of what is free, the shape, the pools that are open to it. Goes out: whether it fits, else a
`Reason`. Called by: waits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import Flags, Rows
from orchestrator.ledger.limits import Binding, Scope
from orchestrator.ledger.power import Headroom, Power
from orchestrator.ledger.state import State
from orchestrator.model.need import pools_for
from orchestrator.model.reasons import Reason, amount_words, reason
from orchestrator.scheduler import segments
from orchestrator.scheduler.domains import Candidates, closest
from orchestrator.scheduler.memory import Memory, Snapshot
from orchestrator.scheduler.place import pick, segments_of, span_of
from orchestrator.scheduler.segments import Segments
from orchestrator.scheduler.shapes import Shape
from orchestrator.scheduler.spend import Money
from orchestrator.scheduler.watts import Idle, Within, new_gpus


class Whereabouts:
    """What of the cluster reasons name: rows of pools, their devices in all, why nodes are closed."""

    def __init__(self, state: State, memory: Memory) -> None:
        self.memory = memory
        self._nodes = state.nodes
        self._names = state.capacity.names
        self._untold: Flags | None = None
        self._idle: Idle | None = None
        self._counts = {pool: len(rows) for pool, rows in state.capacity.pools.items()}

    def idle(self) -> Idle:
        """The nodes as if nothing ran there."""
        if self._idle is None:
            self._idle = Idle(self.memory.totals)
        return self._idle

    def rows(self, pool: str) -> Rows:
        """The rows of a pool."""
        return self.memory.rows_of(pool)

    def count(self, pool: str) -> int:
        """How many nodes of the pool there are."""
        return self._counts.get(pool, 0)

    def untold(self, rows: Rows) -> Flags:
        """Which of these nodes have never told what they have; looked up once, and the same whoever looks."""
        if self._untold is None:
            nodes = (self._nodes.get(name) for name in self._names)
            self._untold = np.array([node is not None and node.facts is None for node in nodes], bool)
        found: Flags = self._untold[rows]
        return found

    def closed_words(self, pool: str) -> tuple[int, str]:
        """How many nodes of the pool may not be given work, and why, counted. The words are those of this moment: the
        marks of a node that was closed in the pass may be others by now."""
        counts: dict[str, int] = {}
        for row in self.rows(pool).tolist():
            node = self._nodes.get(self._names[row])
            if node is not None and not node.open:
                why = str(node.marks[0].kind) if node.marks else str(node.contact)
                why = {"never": "never heard of", "ok": "leaving"}.get(why, why)
                counts[why] = counts.get(why, 0) + 1
        words = ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))
        return sum(counts.values()), words or "-"


def fits(
    free: Snapshot, where: Whereabouts, shape: Shape, pools: list[str], room: Headroom | None = None
) -> bool:
    """Whether one of these pools takes the gang, within what power allows if `room` says that."""
    within = Within(room, free) if room is not None else None
    found = ((pool, candidates(free, where, shape, pool)) for pool in pools)
    return any(pick(where.memory, shape, pool, rows, within=within) is not None for pool, rows in found)


def too_dear(
    free: Snapshot, where: Whereabouts, shape: Shape, pools: list[str], money: Money, room: Headroom | None
) -> Binding | None:
    """The budget that the gang would pass where it would go if money did not matter, in the first pool that has place
    for it; None where there is none, or budgets pay for some place."""
    within = Within(room, free) if room is not None and shape.lights else None
    binding: Binding | None = None
    for pool in pools:
        rows = candidates(free, where, shape, pool)
        chosen = pick(where.memory, shape, pool, rows, within=within)
        if chosen is None:
            continue
        over = money.binding(money.takes([(shape, chosen)]))
        if over is None or pick(where.memory, shape, pool, rows, within=within, money=money) is not None:
            return None
        binding = binding or over
    return binding


def power_reason(
    free: Snapshot, where: Whereabouts, shape: Shape, pools: list[str], power: Power, room: Headroom
) -> Reason:
    """The domain that stops the gang where it would go if power did not matter."""
    found = ((pool, candidates(free, where, shape, pool)) for pool in pools)
    return _stopped_by(where, shape, found, power, Within(room, free)) or reason("wait.next-pass")


def _stopped_by(
    where: Whereabouts,
    shape: Shape,
    found: Iterable[tuple[str, Candidates]],
    power: Power,
    within: Within,
    *,
    alike: bool = True,
) -> Reason | None:
    """The domain that lacks watts where the gang would go, in the first pool that has place for it."""
    for pool, rows in found:
        chosen = pick(where.memory, shape, pool, rows, alike=alike)
        if chosen is not None:
            gpus = new_gpus(shape, within.free, chosen.rows, chosen.units)
            over = power.over(chosen.rows.tolist(), gpus.tolist(), within.room)
            if over is not None:
                return watts_reason(*over, int(gpus.sum()))
    return None


def watts_reason(scope: Scope, over: int, used: int, gpus: int) -> Reason:
    """The domain that so many GPUs more would pass by so many watts."""
    name = scope.name.removeprefix("power=")
    return reason("wait.power", domain=name, ceiling=scope.ceilings["watts"], used=used, gpus=gpus, over=over)


def candidates(
    free: Snapshot, where: Whereabouts, shape: Shape, pool: str, *, kept: bool = True
) -> Candidates:
    """The rows of a pool that take a unit of what is free; costs are of no matter here. Not `kept`: as if nothing were
    kept for GPUs."""
    rows = where.rows(pool)
    rows = rows[shape.eligible[rows]]
    units = shape.units_on(free, rows, kept=kept)
    ok = units > 0
    return Candidates(rows[ok], units[ok], np.zeros(int(ok.sum()), np.int32))


def capacity_reason(free: Snapshot, where: Whereabouts, shape: Shape, pools: list[str]) -> Reason:
    """The reason in the pool where the gang comes closest; the first of the file among equals."""
    hope = [pool for pool in pools if could_hold(where, shape, pool, free.open)]
    if not hope:
        mixed = [pool for pool in pools if could_hold(where, shape, pool, free.open, alike=False)]
        return (
            _software_reason(free, where, shape, mixed[0]) if mixed else _hopeless_reason(where, shape, pools)
        )
    best = max(hope, key=lambda pool: int(candidates(free, where, shape, pool).units.sum()))
    found = candidates(free, where, shape, best, kept=False)
    if shape.plain and pick(where.memory, shape, best, found) is not None:
        return _kept_reason(free, where, shape, best)
    fit = int(found.units.sum())
    if fit >= shape.need.units:
        if pick(where.memory, shape, best, found, alike=False) is not None:
            return _software_reason(free, where, shape, best)
        parts = segments_of(where.memory, shape, best)
        return (
            _domain_reason(where, shape, best, found)
            if parts is None
            else _segments_reason(where, shape, best, found, parts)
        )
    if shape.need.exclusive:
        return _alone_reason(free, where, shape, best, fit)
    return _share_reason(free, where, shape, best) or (_nodes_reason if shape.need.spread else _tasks_reason)(
        free, where, shape, best, fit
    )


def could_hold(
    where: Whereabouts, shape: Shape, pool: str, opened: Flags | None = None, *, alike: bool = True
) -> bool:
    """Whether the pool's nodes would take the gang if nothing ran there: those that are open, or all of them. Not
    `alike`: whatever software they have."""
    rows = where.rows(pool)
    rows = rows[shape.eligible[rows]]
    rows = rows[opened[rows]] if opened is not None else rows
    units = (
        shape.units_when_empty(where.memory.totals, rows)
        if opened is not None
        else when_empty(where, shape, rows)
    )
    ok = units > 0
    found = Candidates(rows[ok], units[ok], np.zeros(int(ok.sum()), np.int32))
    return pick(where.memory, shape, pool, found, alike=alike) is not None


def powered_when_empty(
    where: Whereabouts, shape: Shape, pools: list[str], power: Power, opened: Flags, *, alike: bool = True
) -> bool:
    """Whether power would let the gang go to the open nodes of one of these pools if nothing ran. Not `alike`: whatever
    software they have."""
    within = Within(power.idle, where.idle())
    found = ((pool, _empty(where, shape, pool, opened)) for pool in pools)
    return any(
        pick(where.memory, shape, pool, rows, alike=alike, within=within) is not None for pool, rows in found
    )


def power_when_empty(
    where: Whereabouts, shape: Shape, pools: list[str], power: Power, opened: Flags
) -> Reason | None:
    """The domain that stops the gang on open nodes on which nothing runs, all with the same software if no set of them
    holds it as they are; None where none does, or nodes would not hold it."""
    alike = any(could_hold(where, shape, pool, opened) for pool in pools)
    if powered_when_empty(where, shape, pools, power, opened, alike=alike):
        return None
    found = ((pool, _empty(where, shape, pool, opened)) for pool in pools)
    return _stopped_by(where, shape, found, power, Within(power.idle, where.idle()), alike=alike)


def _empty(where: Whereabouts, shape: Shape, pool: str, opened: Flags) -> Candidates:
    """The open rows of a pool, with the units that each takes if nothing runs there."""
    rows = where.rows(pool)
    rows = rows[shape.eligible[rows] & opened[rows]]
    units = shape.units_when_empty(where.memory.totals, rows)
    ok = units > 0
    return Candidates(rows[ok], units[ok], np.zeros(int(ok.sum()), np.int32))


def when_empty(where: Whereabouts, shape: Shape, rows: Rows) -> NDArray[np.int64]:
    """Units that each row takes when nothing runs there; one that has never told what it has may take any number."""
    units = shape.units_when_empty(where.memory.totals, rows)
    most = 1 if shape.need.spread else shape.need.units
    return np.where(where.untold(rows), most, units)


def _units_empty(where: Whereabouts, shape: Shape, rows: Rows) -> int:
    return int(when_empty(where, shape, rows[shape.eligible[rows]]).sum())


def _hopeless_reason(where: Whereabouts, shape: Shape, pools: list[str]) -> Reason:
    """Nodes that are open could not hold it even when empty: closed ones could, or those that are still to come; else
    it was queued against the refusal."""
    with_closed = [pool for pool in pools if could_hold(where, shape, pool)]
    if with_closed:
        best = max(with_closed, key=lambda pool: _units_empty(where, shape, where.rows(pool)))
        return closed_reason(where, best)
    cluster = where.memory.cluster
    for pool in pools_for(cluster, shape.spec) if cluster else ():
        count = where.count(pool.name)
        if count < pool.most_nodes():
            return reason("wait.few-nodes", pool=pool.name, all=count, most=pool.most_nodes())
    return reason("wait.never", why="no node, pool or domain could hold it, even when empty")


def closed_reason(where: Whereabouts, pool: str) -> Reason:
    """Nodes of the pool that may not be given work could hold it."""
    closed, words = where.closed_words(pool)
    return reason("wait.nodes-closed", pool=pool, closed=closed, all=len(where.rows(pool)), why=words)


def _domain_reason(where: Whereabouts, shape: Shape, pool: str, found: Candidates) -> Reason:
    """Enough is free in all, and no domain of the level that it requires holds the gang."""
    levels = where.memory.topology.levels[pool]
    last = where.memory.topology.at(pool, shape.key.topology.required)
    best = closest(found, tuple(level.of for level in levels), last)
    name = levels[last].names[best.domain] if best.domain >= 0 else "-"
    return reason(
        "wait.domain",
        units=shape.need.units,
        what="nodes" if shape.need.spread else "tasks",
        level=levels[last].name,
        domain=name,
        fit=best.units,
        all=int(found.units.sum()),
        pool=pool,
    )


def _segments_reason(
    where: Whereabouts, shape: Shape, pool: str, found: Candidates, parts: Segments
) -> Reason:
    """Enough nodes are free in all, and too few whole segments in any domain that the gang must stay in."""
    levels = where.memory.topology.levels[pool]
    last = span_of(where.memory, shape, pool).last
    best = segments.closest(found, tuple(level.of for level in levels), last, parts)
    place = f"pool {pool}"
    if last < len(levels):
        place = f"{levels[last].name} {levels[last].names[best.domain] if best.domain >= 0 else '-'}"
    return reason(
        "wait.segments",
        segments=shape.need.units // parts.size,
        nodes=parts.size,
        level=levels[parts.level].name,
        domain=place,
        fit=best.units // parts.size,
        all=int(found.units.sum()),
        pool=pool,
    )


def _software_reason(free: Snapshot, where: Whereabouts, shape: Shape, pool: str) -> Reason:
    """Nodes that are alike are too few."""
    found = candidates(free, where, shape, pool)
    levels = tuple(level.of for level in where.memory.topology.levels.get(pool, ()))
    last, parts = span_of(where.memory, shape, pool).last, segments_of(where.memory, shape, pool)
    sets, most = where.memory.software[found.rows], 0
    for number in dict.fromkeys(sets.tolist()):
        mine = found.of(sets == number)
        best = closest(mine, levels, last) if parts is None else segments.closest(mine, levels, last, parts)
        most = max(most, best.units)
    return reason(
        "wait.software",
        pool=pool,
        fit=most,
        units=shape.need.units,
        what="nodes" if shape.need.spread else "tasks",
        all=int(found.units.sum()),
    )


def _kept_reason(free: Snapshot, where: Whereabouts, shape: Shape, pool: str) -> Reason:
    """It would fit on what is kept for GPUs."""
    wanted = (
        next(one for one in where.memory.cluster.pools if one.name == pool) if where.memory.cluster else None
    )
    return reason(
        "wait.kept-for-gpus",
        pool=pool,
        cores=wanted.keep_cores_per_gpu if wanted is not None else 0,
        memory=wanted.keep_memory_per_gpu if wanted is not None else 0,
        fit=int(candidates(free, where, shape, pool).units.sum()),
        units=shape.need.units,
        what="nodes" if shape.need.spread else "tasks",
    )


def _alone_reason(free: Snapshot, where: Whereabouts, shape: Shape, pool: str, fit: int) -> Reason:
    """Too few nodes are empty."""
    rows = where.rows(pool)
    rows = rows[free.open[rows]]
    return reason(
        "wait.alone",
        empty=int((free.parts[rows] == 0).sum()),
        open=len(rows),
        pool=pool,
        fit=fit,
        units=shape.need.units,
        what="nodes" if shape.need.spread else "tasks",
    )


def _share_reason(free: Snapshot, where: Whereabouts, shape: Shape, pool: str) -> Reason | None:
    """No device has as much of it free as a share takes; None if one has."""
    need, rows = shape.need, where.rows(pool)
    rows = rows[free.open[rows] & shape.eligible[rows]]
    if shape.mig is not None:
        return _mig_reason(free, shape, rows, pool)
    if not need.shares or shape.devices_fit(free, rows).any():
        return None
    largest = int(free.milli[rows].max()) if len(rows) else 0
    if need.device_bytes and largest >= need.milli:
        room = free.device_bytes[rows] * (free.milli[rows] >= max(need.milli, 1))
        left = int(room.max()) if len(rows) else 0
        return reason("wait.device-memory", memory=need.device_bytes, memory_left=left, pool=pool)
    return reason(
        "wait.share",
        share=amount_words("gpus", need.milli),
        largest=amount_words("gpus", largest),
        tasks=need.units,
        pool=pool,
    )


def _mig_reason(free: Snapshot, shape: Shape, rows: Rows, pool: str) -> Reason | None:
    """Too few places for instances, whatever cores and memory there are; None if there are enough."""
    need = shape.need
    assert shape.mig is not None
    units = np.minimum(shape.mig.units_on(free, rows), 1 if need.spread else need.units)
    fit = int(units.sum())
    if fit >= need.units:
        return None
    places, scattered = shape.mig.elsewhere(free, rows)
    return reason(
        "wait.mig",
        units=need.units,
        what="node(s)" if need.spread else "task(s)",
        count=need.gpus,
        profile=need.mig,
        places=shape.mig.places(),
        fit=fit,
        free=places,
        scattered=scattered,
        pool=pool,
    )


def _gpus_words(shape: Shape, pool: str) -> str | int:
    """GPUs of a unit; of a share by memory, as it counts in limits."""
    return amount_words("gpus", shape.milli_in(pool) // shape.need.units)


def _devices(free: Snapshot, where: Whereabouts, rows: Rows) -> tuple[int, int]:
    """Devices of these nodes that are free, and that somebody holds."""
    count = int(free.whole[rows].sum())
    return count, int(where.memory.totals.gpus[rows].sum()) - count


def _tasks_reason(free: Snapshot, where: Whereabouts, shape: Shape, pool: str, fit: int) -> Reason:
    need, rows = shape.need, where.rows(pool)
    devices, taken = _devices(free, where, rows[free.open[rows]])
    return reason(
        "wait.tasks",
        tasks=need.units,
        gpus=_gpus_words(shape, pool),
        cores=need.cores,
        memory=need.memory,
        fit=fit,
        pool=pool,
        free=devices,
        taken=taken,
    )


def _nodes_reason(free: Snapshot, where: Whereabouts, shape: Shape, pool: str, fit: int) -> Reason:
    """What the nodes lack, looked at in this order: GPUs, cores, memory."""
    need, rows = shape.need, where.rows(pool)
    rows = rows[free.open[rows]]
    facts: dict[str, str | int] = {"nodes": need.units, "open": len(rows), "pool": pool}
    devices, taken = _devices(free, where, rows)
    with_gpus = rows[shape.devices_fit(free, rows) & shape.eligible[rows]]
    if len(with_gpus) < need.units:
        gpus = _gpus_words(shape, pool)
        return reason("wait.gpus", gpus=gpus, fit=len(with_gpus), free=devices, taken=taken, **facts)
    with_cores = with_gpus[free.free_cores[with_gpus] >= need.cores]
    if len(with_cores) < need.units:
        return reason("wait.cores", cores=need.cores, fit=len(with_cores), **facts)
    return reason("wait.memory", memory=need.memory, fit=fit, **facts)
