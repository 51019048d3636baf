"""Which nodes stand close together: the domain of every node at each level of its site's fabric.

Comes in: the cluster as wanted, the rows of its nodes. Goes out: `Topology`. Called by: scheduler (places gangs by it),
api (shows it).

Levels go from inside out. A node that no domain of a level names is in none of them; every node is in its site.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import Capacity
from orchestrator.model.cluster import NODE_LEVEL, ClusterSpec, Site
from orchestrator.model.need import SITE_LEVEL

NO_DOMAIN = -1
Domains = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Level:
    """One level: the number of each row's domain, and the domains' names by number."""

    name: str
    of: Domains
    names: tuple[str, ...]


class Topology:
    """The levels of every pool, inside out."""

    def __init__(self, cluster: ClusterSpec | None, capacity: Capacity) -> None:
        self.levels: dict[str, tuple[Level, ...]] = {}  # pool -> its levels
        self._numbers: dict[str, int] = {"": 0, SITE_LEVEL: 0}
        sites: dict[str, tuple[Level, ...]] = {}
        for pool in cluster.pools if cluster else ():
            site = cluster.site_of(pool) if cluster else None
            if cluster is not None and site is not None and site.name not in sites:
                sites[site.name] = _levels(cluster, site, capacity)
            self.levels[pool.name] = sites[site.name] if site is not None else ()

    def innermost(self, pool: str) -> int:
        """The place of the first level that holds more than one node, for gangs that prefer none."""
        levels = self.levels.get(pool, ())
        return 1 if levels and levels[0].name == NODE_LEVEL else 0

    def has(self, pool: str, level: str) -> bool:
        """Whether gangs of the pool can be asked to stay within that level: within a site they stay anyway."""
        return level in ("", SITE_LEVEL) or self.at(pool, level) >= 0

    def number(self, level: str) -> int:
        """A number for a level's name, 0 for none and for the site, where every gang stays anyway."""
        return self._numbers.setdefault(level, len(self._numbers))

    def at(self, pool: str, level: str) -> int:
        """The place of a level among a pool's, from inside out; -1 if it has none of that name."""
        for place, one in enumerate(self.levels.get(pool, ())):
            if one.name == level:
                return place
        return -1


def _levels(cluster: ClusterSpec, site: Site, capacity: Capacity) -> tuple[Level, ...]:
    named = tuple(_level(name, domains, capacity) for name, domains in cluster.domains_of(site).items())
    if any(level.name == NODE_LEVEL for level in named):
        return named
    rows = np.arange(len(capacity.open), dtype=np.int32)
    return (Level(NODE_LEVEL, rows, tuple(capacity.names)), *named)


def _level(name: str, domains: dict[str, tuple[str, ...]], capacity: Capacity) -> Level:
    of = np.full(len(capacity.open), NO_DOMAIN, np.int32)
    for number, nodes in enumerate(domains.values()):
        rows = [capacity.index[node] for node in nodes if node in capacity.index]
        of[rows] = number
    return Level(name, of, tuple(domains))
