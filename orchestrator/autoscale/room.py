"""What is there and what comes: the room of bought pools that waiting gangs may count on.

Comes in: State. Goes out: `Room`, whose nodes a pass books one by one. Called by: cycle.

A node that boots has the shape that its intent says, from the decision to buy it until it can be given work, however
late its devices show up: else the same gang would be bought twice.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from orchestrator.ledger.records import Bought, Fleet, Node
from orchestrator.ledger.state import State
from orchestrator.model.attempt import Placement
from orchestrator.model.capacity import Shape
from orchestrator.model.need import Need
from orchestrator.model.node import Contact, MarkKind

# What an apply has closed (`updating`) is not among these: it changes no bought node, it only lets work leave before
# the site goes, and then waits for this room to give the node back.
HELD_BY_PEOPLE = (MarkKind.CORDONED, MarkKind.CHANGED)


@dataclass(slots=True)
class Spot:
    """A node that a gang may count on: what is free of it, and whether it can be given work now."""

    node: str
    gpus: int
    cores: int
    memory: int
    ready: bool
    booked: bool = False
    empty: bool = True

    def units(self, need: Need) -> int:
        """Units of a gang that it takes."""
        if need.exclusive and (self.booked or not self.empty):
            return 0
        return need.units_on(self.gpus, self.cores, self.memory)

    def part(self, need: Need, units: int) -> Placement:
        """What so many units take of it, as far as prices go: which devices does not matter."""
        if need.exclusive:
            return Placement(self.node, tuple(range(self.gpus)), 0, self.cores, self.memory)
        slots = range(need.gpus * units) if not need.shares else range(units)
        milli = (max(need.milli, 1),) * units if need.shares else ()
        return Placement(self.node, tuple(slots), 0, need.cores * units, need.memory * units, milli)

    def take(self, need: Need, units: int) -> None:
        """Keep so many units' share for a gang."""
        self.booked = True
        if need.exclusive:
            self.gpus = self.cores = self.memory = 0
            return
        self.gpus -= need.gpus * units
        self.cores -= need.cores * units
        self.memory -= need.memory * units


Taken = list[tuple[Spot, int]]


@dataclass(slots=True)
class Room:
    """The spots of each pool, in the order of their nodes' names in State, those that come last."""

    pools: dict[str, list[Spot]] = field(default_factory=dict)

    def fit(self, pool: str, need: Need, without: Container[str] = ()) -> tuple[Taken, int]:
        """What the gang could have here on other nodes than those, and how many of its units it lacks then. Ready
        nodes come first."""
        left, taken = need.units, []
        for spot in sorted(self.pools.get(pool, ()), key=lambda spot: not spot.ready):
            units = min(spot.units(need), left) if spot.node not in without else 0
            if units:
                taken.append((spot, units))
                left -= units
        return taken, left

    def stand(self, state: State, pool: str) -> None:
        """A pool that is not bought: nobody books anything there but who lacks nodes elsewhere as well."""
        if pool not in self.pools:
            nodes = (node for node in state.nodes.values() if node.pool == pool and node.wanted)
            self.pools[pool] = [_free(state, node) for node in nodes if usable(node) and not held(node)]

    def add(self, pool: str, names: tuple[str, ...], shape: Shape) -> None:
        """Nodes that are bought in this very pass."""
        spots = self.pools.setdefault(pool, [])
        spots += [Spot(name, shape.gpus, shape.cores, shape.memory, ready=False) for name in names]

    def book(self, taken: Taken, need: Need) -> None:
        """Those behind may not count on it."""
        for spot, units in taken:
            spot.take(need, units)

    def booked(self) -> dict[str, bool]:
        """Nodes that some gang counts on."""
        return {spot.node: True for spots in self.pools.values() for spot in spots if spot.booked}


def survey(state: State, outdated: frozenset[str]) -> Room:
    """All that bought pools have and get. Nobody counts on outdated nodes that were closed: they don't open again."""
    room = Room()
    for fleet in state.fleets.values():
        spots = room.pools.setdefault(fleet.intent.pool, [])
        if fleet.asked:
            spots += [_coming(name, fleet) for name in fleet.intent.nodes]
        for one in fleet.instances:
            spot = _spot(state, fleet, one)
            closed = fleet.intent.id in outdated and not state.nodes[one.node].open
            if spot is not None and not closed:
                spots.append(spot)
    return room


def _spot(state: State, fleet: Fleet, one: Bought) -> Spot | None:
    node = state.nodes[one.node]
    if one.releasing_us or not node.wanted or held(node):
        return None
    if usable(node):
        return _free(state, node)
    return None if one.proved_us else _coming(one.node, fleet)


def _free(state: State, node: Node) -> Spot:
    there = state.capacity.at(node.name)
    empty = state.capacity.is_empty(node.name)
    return Spot(
        node.name, there.free.bit_count(), there.free_cores, there.free_memory, ready=True, empty=empty
    )


def _coming(name: str, fleet: Fleet) -> Spot:
    shape = fleet.intent.shape
    return Spot(name, shape.gpus, shape.cores, shape.memory, ready=False)


def usable(node: Node) -> bool:
    """Whether it could be given work now, or once it is kept."""
    return node.open or (
        node.facts is not None
        and node.contact is Contact.OK
        and bool(node.marks)
        and all(mark.kind is MarkKind.RELEASING for mark in node.marks)
    )


def held(node: Node) -> bool:
    """Whether people keep it for themselves: it is neither counted on nor given back."""
    return any(mark.kind in HELD_BY_PEOPLE for mark in node.marks)
