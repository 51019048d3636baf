"""Why a gang of unlike groups does not fit what is free: where it comes closest, and which groups lack what there.

Comes in: a snapshot of what is free, a `Grouped` shape, the ways that are open to it. Goes out: whether it fits, else a
`Reason`. Called by: waits. The functions are those of `why`, for ways instead of pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from orchestrator.ledger.capacity import Flags
from orchestrator.ledger.limits import Binding
from orchestrator.ledger.power import Headroom, Power
from orchestrator.model.need import gangs_of, pools_for
from orchestrator.model.reasons import Reason, reason
from orchestrator.scheduler import why
from orchestrator.scheduler.domains import Candidates
from orchestrator.scheduler.group_fitting import MOST_STEPS, Offers, carried, solutions
from orchestrator.scheduler.group_sharing import Found, Steps
from orchestrator.scheduler.grouped import Grouped
from orchestrator.scheduler.memory import Snapshot
from orchestrator.scheduler.place import span_of
from orchestrator.scheduler.spend import Money
from orchestrator.scheduler.watts import Within, new_gpus
from orchestrator.scheduler.why import Whereabouts


class Home(NamedTuple):
    """A way and a domain (or its whole site: no name), with the units of each group that fit there by themselves."""

    way: tuple[str, ...]
    level: str
    domain: str
    found: tuple[Candidates, ...]


def fits(
    free: Snapshot, where: Whereabouts, shape: Grouped, ways: Iterable[str], room: Headroom | None = None
) -> bool:
    """Whether the whole gang fits in one of these ways, within what power allows if `room` says that."""
    within = Within(room, free) if room is not None else None
    return any(
        carried(within, shape, found) for found in _solutions(where, shape, ways, _free(free, where, shape))
    )


def could_hold(where: Whereabouts, shape: Grouped, ways: Iterable[str], opened: Flags | None = None) -> bool:
    """Whether the nodes of one of these ways would take the gang if nothing ran there: those that are open, or all."""
    return any(True for _ in _solutions(where, shape, ways, _all(where, shape, opened)))


def powered_when_empty(
    where: Whereabouts, shape: Grouped, ways: Iterable[str], power: Power, opened: Flags
) -> bool:
    """Whether power would let the gang go to the open nodes of one of these ways if nothing ran."""
    within = Within(power.idle, where.idle())
    every = _solutions(where, shape, ways, _all(where, shape, opened))
    return any(carried(within, shape, found) for found in every)


def too_dear(
    free: Snapshot, where: Whereabouts, shape: Grouped, ways: list[str], money: Money, room: Headroom | None
) -> Binding | None:
    """The budget that the gang would pass in the first place that it could have; None where there is none, or budgets
    pay for some place."""
    within = Within(room, free) if room is not None else None
    binding: Binding | None = None
    for found in _solutions(where, shape, ways, _free(free, where, shape)):
        if carried(within, shape, found):
            over = money.binding(money.takes(zip(shape.groups, found, strict=True)))
            if over is None:
                return None
            binding = binding or over
    return binding


def power_reason(
    free: Snapshot, where: Whereabouts, shape: Grouped, ways: list[str], power: Power, room: Headroom
) -> Reason:
    """The domain that stops the gang where it would go if power did not matter."""
    every = _solutions(where, shape, ways, _free(free, where, shape))
    return _stopped_by(shape, every, power, Within(room, free)) or reason("wait.next-pass")


def power_when_empty(
    where: Whereabouts, shape: Grouped, ways: list[str], power: Power, opened: Flags
) -> Reason | None:
    """The domain that stops the gang on open nodes on which nothing runs; None where none does, or nodes would not hold
    it."""
    if powered_when_empty(where, shape, ways, power, opened):
        return None
    every = _solutions(where, shape, ways, _all(where, shape, opened))
    return _stopped_by(shape, every, power, Within(power.idle, where.idle()))


def _stopped_by(shape: Grouped, every: Iterable[Found], power: Power, within: Within) -> Reason | None:
    for found in every:
        rows: list[int] = []
        gpus: list[int] = []
        for one, chosen in zip(shape.groups, found, strict=True):
            if one.lights:
                rows += chosen.rows.tolist()
                gpus += new_gpus(one, within.free, chosen.rows, chosen.units).tolist()
        over = power.over(rows, gpus, within.room)
        if over is not None:
            return why.watts_reason(*over, sum(gpus))
    return None


def _free(free: Snapshot, where: Whereabouts, shape: Grouped) -> Offers:
    return lambda group, pool: why.candidates(free, where, shape.groups[group], pool)


def _all(where: Whereabouts, shape: Grouped, opened: Flags | None) -> Offers:
    return lambda group, pool: _empty(where, shape, group, pool, opened)


def _solutions(where: Whereabouts, shape: Grouped, ways: Iterable[str], offers: Offers) -> Iterator[Found]:
    steps = Steps(MOST_STEPS)
    for site in shape.by_site(ways):
        yield from solutions(where.memory, shape, site, offers, steps)


def _empty(where: Whereabouts, shape: Grouped, group: int, pool: str, opened: Flags | None) -> Candidates:
    one, rows = shape.groups[group], where.rows(pool)
    rows = rows[one.eligible[rows]]
    if opened is not None:
        rows = rows[opened[rows]]
        units = one.units_when_empty(where.memory.totals, rows)
    else:
        units = why.when_empty(where, one, rows)
    ok = units > 0
    return Candidates(rows[ok], units[ok], np.zeros(int(ok.sum()), np.int32))


def capacity_reason(free: Snapshot, where: Whereabouts, shape: Grouped, ways: list[str]) -> Reason:
    """Where most groups have room, and of those places the one where the rest comes closest."""
    hope = [way for way in ways if could_hold(where, shape, [way], free.open)]
    if not hope:
        return _hopeless_reason(where, shape, ways)
    homes = [home for way in hope for home in _homes(free, where, shape, way)]
    best = max(homes, key=lambda home: _closeness(shape, home))
    lacking = _lacking(shape, best)
    place = f" within {best.level} {best.domain}" if best.domain else ""
    words = "; ".join(
        f"group {shape.names[group]}: {fit} of {shape.groups[group].need.units} {_what(shape, group)} "
        f"in pool {best.way[group]}"
        for group, fit in lacking
    )
    return reason("wait.groups", words=words, place=place, pool=best.way[lacking[0][0]])


def _what(shape: Grouped, group: int) -> str:
    return "node(s)" if shape.groups[group].need.spread else "task(s)"


def _homes(free: Snapshot, where: Whereabouts, shape: Grouped, word: str) -> Iterator[Home]:
    """Each domain of the level that the gang requires in which every group could run by itself, in this way."""
    way = shape.ways[word]
    found = tuple(why.candidates(free, where, one, pool) for one, pool in zip(shape.groups, way, strict=True))
    empty = tuple(_empty(where, shape, group, pool, free.open) for group, pool in enumerate(way))
    levels = where.memory.topology.levels.get(way[0], ())
    last = span_of(where.memory, shape, way[0]).last
    if last >= len(levels):
        yield Home(way, "", "", found)
        return
    level = levels[last]
    for domain, name in enumerate(level.names):
        inside = tuple(one.of(level.of[one.rows] == domain) for one in found)
        rooms = (int(one.units[level.of[one.rows] == domain].sum()) for one in empty)
        if all(room >= one.need.units for room, one in zip(rooms, shape.groups, strict=True)):
            yield Home(way, level.name, name, inside)


def _closeness(shape: Grouped, home: Home) -> tuple[int, int]:
    """How many groups have room, and how much of the rest does, in thousandths."""
    parts = [
        min(int(one.units.sum()), each.need.units) * 1000 // each.need.units
        for one, each in zip(home.found, shape.groups, strict=True)
    ]
    return sum(part == 1000 for part in parts), sum(parts)


def _lacking(shape: Grouped, home: Home) -> list[tuple[int, int]]:
    """The groups that have too little room, with the units that fit. Where each has enough by itself, they are in each
    other's way: then the one with the least to spare, with what the others would leave of it if they came first."""
    rooms = [int(one.units.sum()) for one in home.found]
    needs = [one.need.units for one in shape.groups]
    lacking = [(group, room) for group, room in enumerate(rooms) if room < needs[group]]
    if lacking:
        return lacking
    return [_in_the_way(shape, home)]


def _in_the_way(shape: Grouped, home: Home) -> tuple[int, int]:
    order = sorted(range(len(shape.groups)), key=lambda group: len(home.found[group].rows))
    taken: Flags = np.zeros(1 + max(int(one.rows.max()) for one in home.found), bool)
    for group in order:
        left = home.found[group].of(~taken[home.found[group].rows])
        fit, need = int(left.units.sum()), shape.groups[group].need.units
        if fit < need:
            return group, fit
        count = int(np.searchsorted(np.cumsum(left.units), need)) + 1
        taken[left.rows[:count]] = True
    return order[-1], 0  # whoever comes last has to share with the others


def _hopeless_reason(where: Whereabouts, shape: Grouped, ways: list[str]) -> Reason:
    """As for equal gangs: closed nodes could hold it, or those that are still to come; else it was queued against the
    refusal."""
    for way in ways:
        closed = [pool for pool in shape.ways[way] if where.closed_words(pool)[0]]
        if closed and could_hold(where, shape, [way]):
            return why.closed_reason(where, closed[0])
    cluster = where.memory.cluster
    # Ways are of pools that have nodes already.
    suiting = (pools_for(cluster, gang) for gang in gangs_of(shape.spec)) if cluster is not None else ()
    for pools in suiting:
        for pool in pools:
            count = where.count(pool.name)
            if count < pool.most_nodes():
                return reason("wait.few-nodes", pool=pool.name, all=count, most=pool.most_nodes())
    return reason("wait.never", why="no site could hold all of its groups at once, even when empty")
