"""The shape of a gang of unlike groups: one shape for each group, and the pools that they may have together.

Comes in: what `Shape` takes, of a job with groups. Goes out: `Grouped`. Called by: memory (makes them), groups (places
them), waits.

A *way* is a choice of a pool for each group, all of one site, since the groups talk to each other. It is known by a
word, and stands where a shape of an equal gang has the name of a pool: limits leave some ways open, a gang is kept
nodes for in one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from orchestrator.ledger.capacity import WHOLE, Rows
from orchestrator.ledger.state import ShapeKey, State
from orchestrator.ledger.topology import Topology
from orchestrator.model.job import JobSpec
from orchestrator.model.need import Need, gangs_of, ways_of
from orchestrator.scheduler.shapes import Scale, Shape


class Grouped(Shape):
    """A shape whose `groups` are shapes, whose `pools` are words for ways, and which no other shape closes."""

    __slots__ = ("_sites", "groups", "names", "ways")

    def __init__(
        self,
        number: int,
        key: ShapeKey,
        spec: JobSpec,
        state: State,
        topology: Topology,
        rows: Mapping[str, Rows],
        scale: Scale,
    ) -> None:
        self.groups = tuple(
            Shape(number, key._replace(request=gang.request), gang, state, topology, rows, scale)
            for gang in gangs_of(spec)
        )
        self.names = tuple(group.name for group in spec.request.groups)
        self.number, self.key, self.spec, self.scale = number, key, spec, scale
        needs = [one.need for one in self.groups]
        # What a unit of any group takes at least: a row that has grown by less opens nothing. No units: a shape that
        # is closed says nothing of this one.
        self.need = Need(
            units=0,
            gpus=min(one.whole for one in self.groups),
            cores=min(need.cores for need in needs),
            memory=min(need.memory for need in needs),
            spread=False,
            tasks=0,
        )
        self.unit_milli = min(*(one.unit_milli for one in self.groups), WHOLE)
        self.share_bytes = min(one.share_bytes for one in self.groups)
        self.milli = sum(one.milli for one in self.groups)
        self.whole, self.mig, self.plain = self.need.gpus, None, False
        self.narrow = True
        self.only_pool = ""
        self.suit(state, topology, rows)

    def suit(self, state: State, topology: Topology, rows: Mapping[str, Rows]) -> None:
        """The ways, in the order of the file."""
        for one in self.groups:
            one.suit(state, topology, rows)
        cluster = state.cluster
        self._sites = {pool.name: pool.site for pool in cluster.pools} if cluster is not None else {}
        self.ways = {"+".join(way): way for way in ways_of(self._sites, (one.pools for one in self.groups))}
        self.pools = tuple(self.ways)
        self.eligible = np.logical_or.reduce([one.eligible for one in self.groups])

    def forget(self) -> None:
        """The costs of its groups are others."""
        for one in self.groups:
            one.forget()

    def pool_mask(self, state: State) -> int:
        """None: it is compared with no other shape."""
        return 0

    def milli_in(self, pool: str) -> int:
        """What the whole gang counts for in that way."""
        return sum(one.milli_in(name) for one, name in zip(self.groups, self.ways[pool], strict=True))

    def shares(self, way: str) -> Iterator[tuple[int, str]]:
        """What each group counts for in limits in that way, with its pool."""
        return ((one.milli_in(pool), pool) for one, pool in zip(self.groups, self.ways[way], strict=True))

    def by_site(self, ways: Iterable[str]) -> list[list[tuple[str, ...]]]:
        """The pools of these ways, those of one site together."""
        found: dict[str, list[tuple[str, ...]]] = {}
        for word in ways:
            way = self.ways[word]
            found.setdefault(self._sites[way[0]], []).append(way)
        return list(found.values())
