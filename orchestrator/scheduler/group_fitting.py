"""Where all groups of a gang have room at once: domain by domain, pool by pool.

Comes in: what offers units to each group in each pool, the ways that are open. Goes out: rows for each group. Called
by: groups (over what is free, and over empty nodes), why_groups (over what a pass has left).

Domains are tried from the level that the gang prefers outwards, up to the one that it requires or the site; of those
that have room for each group by itself the one with the least room comes first, and in it the cheapest way. A gang for
which nothing is found fits nowhere, as long as the steps that are given last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.topology import Domains
from orchestrator.scheduler import place
from orchestrator.scheduler.domains import Candidates
from orchestrator.scheduler.group_sharing import Found, Steps, share
from orchestrator.scheduler.grouped import Grouped
from orchestrator.scheduler.memory import Memory
from orchestrator.scheduler.place import Levels
from orchestrator.scheduler.spend import Money
from orchestrator.scheduler.watts import Within, all_within

MOST_STEPS = 4000  # for one look at one gang: some hundredths of a second at worst
Able = tuple[tuple[str, ...], Found]  # a way, and what offers units to each group in it
Offers = Callable[[int, str], Candidates]  # the rows of a pool that take units of a group, by its number


def solutions(
    memory: Memory,
    shape: Grouped,
    ways: list[tuple[str, ...]],
    offers: Offers,
    steps: Steps,
    *,
    widest: bool = False,
) -> Iterator[Found]:
    """The ways of one site in which the gang fits, from the smallest domains outwards, or in the `widest` alone."""
    needs = tuple(one.need.units for one in shape.groups)
    known: dict[tuple[int, str], Candidates] = {}
    able: list[Able] = []
    for way in ways:
        for pair in enumerate(way):
            if pair not in known:
                known[pair] = offers(*pair)
        found = tuple(known[pair] for pair in enumerate(way))
        if all(int(one.units.sum()) >= need for one, need in zip(found, needs, strict=True)):
            able.append((way, found))
    if not able:
        return
    levels = tuple(level.of for level in memory.topology.levels.get(able[0][0][0], ()))
    first, last = _span(memory, shape, able[0][0][0])
    for level in range(last if widest else first, min(last + 1, len(levels))):
        for domain, able_there in _homes(levels[level], able, needs):
            inside = [
                (way, tuple(one.of(levels[level][one.rows] == domain) for one in found))
                for way, found in able_there
            ]
            yield from _cheapest_first(inside, needs, levels[:level], steps)
    if last >= len(levels):
        yield from _cheapest_first(able, needs, levels, steps)


def _span(memory: Memory, shape: Grouped, pool: str) -> Levels:
    """Two groups never share a node: nobody looks at single nodes for them."""
    first, last = place.span_of(memory, shape, pool)
    return Levels(min(max(first, memory.topology.innermost(pool)), last), last)


def _homes(of: Domains, able: list[Able], needs: tuple[int, ...]) -> Iterator[tuple[int, list[Able]]]:
    """Domains that have room for each group by itself in one of these ways, those with the least room first."""
    found: dict[int, tuple[int, list[Able]]] = {}
    count = int(of.max(initial=-1)) + 1
    for one in able:
        rooms = [_room(of[each.rows], each, count) for each in one[1]]
        ok = np.logical_and.reduce([room >= need for room, need in zip(rooms, needs, strict=True)])
        total = np.add.reduce(rooms)
        for domain in np.flatnonzero(ok).tolist():
            least, ways = found.get(domain, (int(total[domain]), []))
            found[domain] = min(least, int(total[domain])), [*ways, one]
    order = sorted(found, key=lambda domain: (found[domain][0], domain))
    return ((domain, found[domain][1]) for domain in order)


def _room(of: Domains, found: Candidates, count: int) -> NDArray[np.int64]:
    inside = of >= 0
    return np.bincount(of[inside], weights=found.units[inside], minlength=count).astype(np.int64)


def _cheapest_first(
    able: list[Able], needs: tuple[int, ...], levels: tuple[Domains, ...], steps: Steps
) -> list[Found]:
    """What fits in each of these ways; of equal costs the first of the file."""
    found = (_fitting(*one, needs, levels, steps) for one in able)
    return sorted((one for one in found if one is not None), key=cost_of)


def carried(within: Within | None, shape: Grouped, found: Found) -> bool:
    """Whether power carries all groups there. Where it does not, other domains and ways are tried, and no other rows
    of the same: a gang may wait that would fit."""
    return within is None or all_within(within, zip(shape.groups, found, strict=True))


def paid(money: Money | None, shape: Grouped, found: Found) -> bool:
    """Whether budgets pay for all groups there; else as with power."""
    return money is None or money.binding(money.takes(zip(shape.groups, found, strict=True))) is None


def cost_of(found: Found) -> int:
    """What all rows cost together, each once."""
    return sum(int(one.costs.astype(np.int64).sum()) for one in found)


def _fitting(
    way: tuple[str, ...], found: Found, needs: tuple[int, ...], levels: tuple[Domains, ...], steps: Steps
) -> Found | None:
    """The groups pool by pool: what one pool has is no other pool's."""
    chosen: dict[int, Candidates] = {}
    for pool in dict.fromkeys(way):
        members = [group for group, name in enumerate(way) if name == pool]
        wanted = tuple(needs[group] for group in members)
        shared = share(tuple(found[group] for group in members), wanted, levels, steps)
        if shared is None:
            return None
        chosen.update(zip(members, shared, strict=True))
    return tuple(chosen[group] for group in range(len(way)))
