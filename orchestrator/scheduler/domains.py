"""Which nodes a gang takes, so that it stays close together: best fit inside the smallest domain.

Comes in: the rows that take units of a gang, how many each takes and at what cost, the levels of their pool. Goes out:
the rows chosen with their units, or None. Called by: place, segments.

From the level that the gang prefers (the innermost one if it prefers none) outwards, up to the one that it requires,
the first level with a domain that holds the whole gang decides: of those domains the one with the least room, then the
lower number. Within it the gang takes whole inner domains, the largest first, and for the rest the one that is nearest
in size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import Rows
from orchestrator.ledger.topology import NO_DOMAIN, Domains

Units = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows that take at least one unit: `units` is how many each takes, `costs` what a unit costs there."""

    rows: Rows
    units: Units
    costs: NDArray[np.int32]

    def of(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> Candidates:
        """Some of them."""
        if chosen.dtype == np.bool_:
            chosen = chosen.nonzero()[0]
        return Candidates(self.rows.take(chosen), self.units.take(chosen), self.costs.take(chosen))


@dataclass(frozen=True, slots=True)
class Closest:
    """The domain that came closest to holding a gang: how many units it takes now."""

    level: int
    domain: int
    units: int


def choose(
    found: Candidates, wanted: int, levels: tuple[Domains, ...], first: int, last: int
) -> Candidates | None:
    """Rows for `wanted` units within one domain of the levels `first` to `last` (inclusive), or, where `last` is past
    all levels, anywhere. `units` of the result are what each row gives."""
    if int(found.units.sum()) < wanted:
        return None
    for level in range(first, min(last + 1, len(levels))):
        of = levels[level].take(found.rows)
        room = _room(of, found.units)
        fitting = (room >= wanted).nonzero()[0]
        if len(fitting):
            best = fitting[np.argmin(room[fitting])]
            return within(found.of(of == best), wanted, levels[:level])
    return None if last < len(levels) else within(found, wanted, levels)


def closest(found: Candidates, levels: tuple[Domains, ...], last: int) -> Closest:
    """Where a gang that must stay within the level `last` comes closest, when it fits nowhere."""
    if last >= len(levels) or not len(found.rows):
        return Closest(-1, NO_DOMAIN, int(found.units.sum()))
    room = _room(levels[last][found.rows], found.units)
    if not len(room):
        return Closest(last, NO_DOMAIN, 0)
    best = int(np.argmax(room))
    return Closest(last, best, int(room[best]))


def _room(of: Domains, units: Units) -> Units:
    """Units that each domain takes; rows in no domain count nowhere."""
    if len(of) and of.min() < 0:
        inside = (of >= 0).nonzero()[0]
        of, units = of[inside], units[inside]
    if len(of) and units.max() == 1:
        return np.bincount(of)
    return np.bincount(of, weights=units).astype(np.int64)


def within(found: Candidates, wanted: int, levels: tuple[Domains, ...]) -> Candidates:
    """So many units of rows that hold at least as many, over as few inner domains as possible."""
    if len(found.rows) == 1:
        return Candidates(found.rows, np.array([wanted], np.int64), found.costs)
    if not levels:
        return _nodes(found, wanted)
    of = levels[-1].take(found.rows)
    if of.min() < 0:
        if of.max() < 0:
            return within(found, wanted, levels[:-1])
        of = np.where(of < 0, of.max() + 1, of)  # what is in no domain counts as one of its own, the last
    room = _room(of, found.units)
    if room.max() == 1:  # nodes with one unit each: the first ones
        return found.of(of.argsort(kind="stable")[:wanted])
    domains = room.nonzero()[0]
    domains = domains[np.argsort(-room[domains], kind="stable")]
    room = room[domains]
    before = np.cumsum(room) - room
    whole = int(np.argmax(room + before >= wanted))  # so many are taken whole, then one gives the rest
    left = wanted - int(before[whole])
    enough = np.count_nonzero(room >= left)
    last = whole + int(np.argmin(room[whole:enough]))
    rest = within(found.of(of == domains[last]), left, levels[:-1])
    if not whole:
        return rest
    taken = np.zeros(int(of.max()) + 1, bool)
    taken[domains[:whole]] = True
    full = found.of(taken[of])
    return Candidates(
        np.concatenate([full.rows, rest.rows]),
        np.concatenate([full.units, rest.units]),
        np.concatenate([full.costs, rest.costs]),
    )


def _nodes(found: Candidates, wanted: int) -> Candidates:
    """The fewest nodes that give so many units, and of those the cheapest."""
    if int(found.units.max()) == 1:
        order = np.argsort(found.costs, kind="stable")[:wanted]
        return found.of(order)
    order = np.lexsort((found.rows, found.costs, -found.units))
    before = np.cumsum(found.units[order]) - found.units[order]
    count = int(np.searchsorted(before, wanted))
    taken = order[:count]
    rest = wanted - int(before[count - 1])
    spare = np.setdiff1d(order, taken[:-1], assume_unique=True)
    spare = spare[found.units[spare] >= rest]
    tight = spare[np.lexsort((found.rows[spare], found.costs[spare], found.units[spare]))[0]]
    chosen = found.of(np.append(taken[:-1], tight))
    units = chosen.units.copy()
    units[-1] = rest
    return Candidates(chosen.rows, units, chosen.costs)
