"""Gangs that fall into segments: so many nodes each, every segment within one domain of a level.

Comes in: the rows that take a node of the gang, the levels of their pool, the level and size of segments. Goes out: the
rows chosen, or None; the order that makes a segment's nodes neighbours. Called by: place, why.

What a domain holds of such a gang is counted in whole segments: of seven free nodes of a domain segments of four can
use four. Else it goes as for gangs in one piece (`domains`): the smallest domain that holds all segments, of those the
one with the least room (in segments, then in nodes), and in it as few inner domains as possible.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import Rows
from orchestrator.ledger.topology import NO_DOMAIN, Domains
from orchestrator.scheduler import domains
from orchestrator.scheduler.domains import Candidates, Closest, Units


class Segments(NamedTuple):
    """Each of `size` nodes, within one domain of the level with that place among the levels of a pool."""

    level: int
    size: int


def choose(
    found: Candidates, wanted: int, levels: tuple[Domains, ...], first: int, last: int, parts: Segments
) -> Candidates | None:
    """As `domains.choose`, in segments; `wanted` is a multiple of their size."""
    inside = levels[parts.level][found.rows]
    if int(_room(np.zeros_like(inside), inside, found.units, parts.size).sum()) < wanted:
        return None
    for level in range(first, min(last + 1, len(levels))):
        of = levels[level][found.rows]
        room = _room(of, inside, found.units, parts.size)
        fitting = np.flatnonzero(room >= wanted)
        if len(fitting):
            best = _tightest(fitting, room, of, found.units)
            return _within(found.of(of == best), wanted, levels[:level], levels[parts.level], parts)
    return None if last < len(levels) else _within(found, wanted, levels, levels[parts.level], parts)


def closest(found: Candidates, levels: tuple[Domains, ...], last: int, parts: Segments) -> Closest:
    """The domain of the level `last` that takes most nodes in whole segments; past all levels, all that is there."""
    inside = levels[parts.level][found.rows]
    anywhere = last >= len(levels)
    of = np.zeros_like(inside) if anywhere else levels[last][found.rows]
    room = _room(of, inside, found.units, parts.size)
    if not len(room):
        return Closest(last, NO_DOMAIN, 0)
    best = int(np.argmax(room))
    return Closest(last, NO_DOMAIN if anywhere else best, int(room[best]))


def in_order(chosen: Candidates, levels: tuple[Domains, ...], parts: Segments) -> Rows:
    """Places in `chosen`, ordered so that each segment's nodes follow each other, and near segments too."""
    keys: list[NDArray[Any]] = [levels[level][chosen.rows] for level in range(parts.level, len(levels))]
    order: Rows = np.lexsort([chosen.rows, *keys])
    return order


def _room(of: Domains, inside: Domains, units: Units, size: int) -> Units:
    """[domains of `of`] nodes that each takes in whole segments, of which each is within one domain of `inside`."""
    known = (of >= 0) & (inside >= 0)
    of, inside, units = of[known], inside[known], units[known]
    if not len(of):
        return np.zeros(0, np.int64)
    across = int(inside.max()) + 1
    pairs, at = np.unique(of.astype(np.int64) * across + inside, return_inverse=True)
    whole = np.bincount(at, weights=units).astype(np.int64) // size * size
    return np.bincount(pairs // across, weights=whole).astype(np.int64)


def _tightest(fitting: Rows, room: Units, of: Domains, units: Units) -> int:
    """Of these domains the one with the least room in whole segments, then in nodes, then the lower number."""
    nodes = np.bincount(np.maximum(of, 0), weights=np.where(of >= 0, units, 0)).astype(np.int64)
    return int(fitting[np.lexsort([fitting, nodes[fitting], room[fitting]])[0]])


def _within(
    found: Candidates, wanted: int, levels: tuple[Domains, ...], homes: Domains, parts: Segments
) -> Candidates:
    """So many nodes of rows that hold as many in whole segments, over as few inner domains as possible: `levels` are
    those inside the domain that was chosen, `homes` the one of segments."""
    outer = len(levels) > parts.level + 1
    of = (levels[-1] if outer else homes)[found.rows]
    inside = homes[found.rows]
    if outer and (of < 0).any():
        of = np.where(of < 0, of.max(initial=-1) + 1, of)  # what is in no domain counts as one of its own
    room = _room(of, inside, found.units, parts.size)
    order = np.argsort(-room, kind="stable")
    taken: list[Candidates] = []
    left = wanted
    for at, largest in enumerate(order):
        domain, count = largest, min(int(room[largest]), left)
        if room[domain] >= left:
            fitting = order[at:][room[order[at:]] >= left]
            domain = _tightest(fitting, room, of, found.units)
        mine = found.of(of == domain)
        if outer:
            taken.append(_within(mine, count, levels[:-1], homes, parts))
        else:
            taken.append(domains.within(mine, count, levels[: parts.level]))
        left -= count
        if not left:
            break
    return Candidates(
        np.concatenate([one.rows for one in taken]),
        np.concatenate([one.units for one in taken]),
        np.concatenate([one.costs for one in taken]),
    )
