"""Where power lets a gang go: nodes as far as the domains that feed them have watts left.

Comes in: what takes units (`Candidates`), the shape, `Headroom` of power domains. Goes out: rows that all these domains
carry together, or None. Called by: place, why. Without limits on power nothing of this is asked.

Units go first where GPUs are lit already: shares and MIG instances on such devices draw nothing more. What rows could
light one by one may be too much together. Then units are given out in the order of cost as long as watts are left,
domain by domain of the level that the gang requires, and it chooses among those. Where domains hang on each other like
a tree, and nodes of a pool load each of them alike, that finds a place whenever there is one; where feeds cross it may
miss one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import FAR, WHOLE, Rows
from orchestrator.ledger.power import Headroom
from orchestrator.ledger.slices import Slices
from orchestrator.ledger.topology import Domains
from orchestrator.scheduler.domains import Candidates
from orchestrator.scheduler.shapes import Parts, Shape, Totals

Units = NDArray[np.int64]
Choosing = Callable[[Candidates], Candidates | None]  # the rows of a gang, by topology and cost


ALL = 1 << 16  # more GPUs than any node has: a unit on a node of its own lights all of them


class Within(NamedTuple):
    """What power leaves, and what is free of the devices that would draw it."""

    room: Headroom
    free: Parts


class Light(NamedTuple):
    """What units of a gang light, a row each: `lit` units take devices that draw power already; one idle device takes
    `dark` more, or, where it is less than 0, a unit takes so many idle devices; `idle` is how many there are."""

    lit: Units
    dark: Units
    idle: Units

    def at(self, chosen: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Light:
        """Some of the rows."""
        return Light(self.lit[chosen], self.dark[chosen], self.idle[chosen])

    def gpus(self, units: Units) -> Units:
        """GPUs that so many units light."""
        more = np.maximum(units - self.lit, 0)
        found = np.where(self.dark < 0, -self.dark * more, -(-more // np.maximum(self.dark, 1)))
        least: Units = np.minimum(found, self.idle)
        return least

    def units(self, gpus: Units) -> Units:
        """Units that fit where so many GPUs may be lit."""
        found = np.where(self.dark < 0, gpus // np.maximum(-self.dark, 1), self.lit + gpus * self.dark)
        return np.where(gpus >= self.idle, FAR, found)


def light_of(shape: Shape, free: Parts, rows: Rows) -> Light:
    """What units of the shape light on these rows, if what shares a device goes to lit ones first."""
    idle = free.milli[rows] == WHOLE
    count: Units = idle.sum(axis=1)
    if shape.need.exclusive:
        return Light(np.zeros(len(rows), np.int64), np.full(len(rows), -ALL, np.int64), count)
    if shape.mig is not None:
        return _light_of_instances(shape.need.gpus, shape.mig.fitting(free, rows), idle, count)
    if shape.need.gpus:
        return Light(np.zeros(len(rows), np.int64), np.full(len(rows), -shape.need.gpus, np.int64), count)
    shares = shape.shares_on(free, rows)
    return Light((shares * ~idle).sum(axis=1), (shares * idle).max(axis=1), count)


def _light_of_instances(each: int, fitting: Units, idle: NDArray[np.bool_], count: Units) -> Light:
    """Of units of so many MIG instances: what lit GPUs have left beyond whole units is not counted on."""
    of_idle: Units = (fitting * idle).max(axis=1)
    several = -(-each // np.maximum(of_idle, 1))  # GPUs of a unit that needs more than one
    return Light(
        (fitting * ~idle).sum(axis=1) // each, np.where(of_idle >= each, of_idle // each, -several), count
    )


def choose_within(
    within: Within, shape: Shape, found: Candidates, choosing: Choosing, home: Domains | None
) -> Candidates | None:
    """As `choosing` for the whole gang, within what power allows. `home`: the level in one domain of which it has to
    stay; None if it may go anywhere."""
    room, light = within.room, light_of(shape, within.free, found.rows)
    units = np.minimum(found.units, light.units(room.gpus(found.rows)))  # of each row if no other took any
    ok = units > 0
    found, light = Candidates(found.rows[ok], units[ok], found.costs[ok]), light.at(ok)
    chosen = choosing(found)
    if chosen is None or all_within(within, [(shape, chosen)]):
        return chosen
    for mine in homes(found.rows, home):
        chosen = choosing(_as_far(room, found.of(mine), light.at(mine)))
        if chosen is not None:
            return chosen
    return None


def new_gpus(shape: Shape, free: Parts, rows: Rows, units: Units) -> Units:
    """GPUs that so many units would light on each of these rows."""
    return light_of(shape, free, rows).gpus(units)


def all_within(within: Within, gang: Iterable[tuple[Shape, Candidates]]) -> bool:
    """Whether power carries what these rows would light together, of one group or of several."""
    then = within.room.copy()
    for shape, chosen in gang:
        gpus = new_gpus(shape, within.free, chosen.rows, chosen.units) if shape.lights else chosen.units * 0
        for row, count in zip(chosen.rows.tolist(), gpus.tolist(), strict=True):
            then.light(row, count)
    return bool((then.left >= np.minimum(within.room.left, 0)).all())


def homes(rows: Rows, home: Domains | None) -> Iterator[NDArray[np.intp]]:
    """Places of the rows of each domain that the gang may stay in."""
    if home is None:
        yield np.arange(len(rows))
        return
    of = home[rows]
    for domain in np.unique(of[of >= 0]).tolist():
        yield np.flatnonzero(of == domain)


def _as_far(room: Headroom, found: Candidates, light: Light) -> Candidates:
    """Units given out in the order of cost, as long as watts are left."""
    then, units = room.copy(), np.zeros(len(found.rows), np.int64)
    for at in np.lexsort((found.rows, found.costs)).tolist():
        one, row = light.at(slice(at, at + 1)), found.rows[at : at + 1]
        units[at] = min(int(found.units[at]), int(one.units(then.gpus(row))[0]))
        then.light(int(row[0]), int(one.gpus(units[at : at + 1])[0]))
    ok = units > 0
    return Candidates(found.rows[ok], units[ok], found.costs[ok])


class Idle:
    """Devices of nodes on which nothing runs."""

    def __init__(self, totals: Totals) -> None:
        slots = totals.device_memory.shape[1]
        self.milli = (np.arange(slots)[None, :] < totals.gpus[:, None]).astype(np.int32) * WHOLE
        self.device_bytes = totals.device_memory
        self.slices = Slices()
