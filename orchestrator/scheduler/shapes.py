"""Shapes: what equal jobs ask for, with the cost of putting one unit of it on each node, kept up to date lazily.

Comes in: State, a job of the shape. Goes out: `Shape`: its need, the rows that suit it, a cost for each. Called by:
memory (makes them), place (chooses by their costs), reasons.

A cost is an integer in micro-GPU; `NO_ROOM` where the unit does not fit. Costs are a pure function of what is free: a
shape that is looked at again computes those rows anew that were touched since, and a shape that is made anew has the
same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.ask import Ask
from orchestrator.ledger.capacity import FAR, WHOLE, Capacity, Flags, Rows
from orchestrator.ledger.slices import Slices
from orchestrator.ledger.state import ShapeKey, State
from orchestrator.ledger.topology import NO_DOMAIN, Topology
from orchestrator.model.job import JobSpec
from orchestrator.model.need import Need, models_of, need_of, pools_for
from orchestrator.scheduler import waste
from orchestrator.scheduler.mig import Instances, Weights
from orchestrator.scheduler.mix import Tables

NO_ROOM: Final = waste.NO_FIT
STEP_OF_MODELS: Final = 100_000_000  # micro-GPU: ten models stay below half of `NO_ROOM`
NEVER: Final = 2 * NO_ROOM  # besides what a row costs: whatever it saves of waste, it stays without room
MICRO: Final = 1_000_000  # micro-GPU of a device
Costs = NDArray[np.int32]


def milli_of(size: int, memory: int) -> int:
    """The share of a device with so much memory that so many bytes are, in thousandths; rounded down, so that as many
    fit as its bytes allow."""
    return max(1, size * WHOLE // memory) if memory else 1


class Parts(Protocol):
    """What is free of each device, a row a node."""

    @property
    def milli(self) -> NDArray[np.int32]: ...
    @property
    def device_bytes(self) -> NDArray[np.int64]: ...
    @property
    def slices(self) -> Slices: ...


class Free(Protocol):
    """What is free, a row a node: the arrays of `Capacity`, or copies of them."""

    @property
    def open(self) -> Flags: ...
    @property
    def whole(self) -> NDArray[np.int16]: ...
    @property
    def parts(self) -> NDArray[np.int32]: ...
    @property
    def milli(self) -> NDArray[np.int32]: ...
    @property
    def device_bytes(self) -> NDArray[np.int64]: ...
    @property
    def free_cores(self) -> NDArray[np.int64]: ...
    @property
    def free_memory(self) -> NDArray[np.int64]: ...
    @property
    def plain_cores(self) -> NDArray[np.int64]: ...
    @property
    def plain_memory(self) -> NDArray[np.int64]: ...
    @property
    def slices(self) -> Slices: ...


class Totals(Protocol):
    """What nodes have in all, a row a node."""

    @property
    def gpus(self) -> NDArray[np.int16]: ...
    @property
    def device_memory(self) -> NDArray[np.int64]: ...
    @property
    def cores(self) -> NDArray[np.int64]: ...
    @property
    def memory(self) -> NDArray[np.int64]: ...
    @property
    def most_plain_cores(self) -> NDArray[np.int64]: ...
    @property
    def most_plain_memory(self) -> NDArray[np.int64]: ...


@dataclass(slots=True)
class Scale:
    """What all shapes are weighed with: the tables of the present mix, the code that reads them, whether models, as a
    job names them, are in order of preference, and what the mix asks for of MIG profiles."""

    tables: Tables
    costs: waste.Costs
    renew: waste.Renew
    ranked: bool = False
    mig: Weights = ()


class Shape:
    """One shape; its number is its place in the arrays of `Memory`."""

    __slots__ = (
        "_homes",
        "_milli_in",
        "ask",
        "costs",
        "eligible",
        "key",
        "less_liked",
        "mig",
        "milli",
        "narrow",
        "need",
        "number",
        "only_pool",
        "plain",
        "pools",
        "scale",
        "seen",
        "share_bytes",
        "spec",
        "unit_milli",
        "whole",
    )

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
        self.number = number
        self.key = key
        self.spec = spec
        self.need: Need = need_of(spec)
        self.whole = 0 if self.need.mig else self.need.gpus  # devices that nobody else may have a part of
        self.unit_milli = self.need.milli or self.whole * WHOLE
        self.share_bytes = self.need.device_bytes if self.need.shares else 0
        self.narrow = bool(self.need.mig or (self.need.gpus and self.need.device_bytes)) or bool(
            key.topology.segment_nodes
        )
        self.milli = self.unit_milli * self.need.units  # as limits count it, where all pools count it alike
        self.scale = scale
        self.ask = Ask(
            self.whole,
            max(self.need.milli, 1) if self.need.shares else 0,
            self.share_bytes,
            self.need.cores,
            self.need.memory,
        )  # without models: those that it takes are in `eligible`
        self.suit(state, topology, rows)

    @property
    def lights(self) -> bool:
        """Whether GPUs draw power for it: those it has, or all of nodes that are nobody else's."""
        return bool(self.need.gpus or self.need.shares or self.need.exclusive)

    def pool_mask(self, state: State) -> int:
        """Its pools as bits, by their place among all; pools beyond the 62nd share a bit with others."""
        places = {name: min(place, 62) for place, name in enumerate(state.capacity.pools)}
        mask = 0
        for pool in self.pools:
            mask |= 1 << places[pool]
        return mask

    def suit(self, state: State, topology: Topology, rows: Mapping[str, Rows]) -> None:
        """Which rows have what it names at all, and stand in a domain of the levels that it needs; costs start anew."""
        capacity = state.capacity
        required = self.key.topology.required
        found = [
            pool
            for pool in (pools_for(state.cluster, self.spec) if state.cluster else ())
            if pool.name in capacity.pools and topology.has(pool.name, required)
        ]
        self.pools = tuple(pool.name for pool in found)
        self.only_pool = self.pools[0] if len(self.pools) == 1 else ""
        self.eligible: Flags = np.zeros(capacity.rows, bool)
        for pool in self.pools:
            self.eligible[rows[pool]] = True
            for wanted in (required, self.key.topology.segment_level):
                level = topology.at(pool, wanted) if wanted else -1
                if level >= 0:
                    self.eligible[rows[pool]] &= topology.levels[pool][level].of[rows[pool]] != NO_DOMAIN
        self.mig = Instances(self.need, found, capacity, rows) if self.need.mig else None
        if self.mig is not None:
            self.unit_milli, counted = self.mig.each, list(dict.fromkeys(self.mig.milli_in.values()))
            self.milli = counted[0] if len(counted) == 1 else 0
        if self.need.gpus and self.need.device_bytes:
            self.eligible &= capacity.device_memory[: capacity.rows].max(axis=1) >= self.need.device_bytes
        self._homes: dict[str, tuple[Rows, NDArray[np.int64]]] = {}
        self.plain = self._leaves_what_is_kept(capacity)
        self._milli_in = {pool: self._milli_of_gang(capacity, pool, rows[pool]) for pool in self.pools}
        if self.need.exclusive:
            found_milli = list(dict.fromkeys(self._milli_in.values()))
            self.milli = found_milli[0] if len(found_milli) == 1 else 0
        self.costs: Costs = np.full(capacity.rows, NO_ROOM, np.int32)
        self.seen = -1
        self.less_liked = self._by_preference(capacity) if self.scale.ranked else None

    def _by_preference(self, capacity: Capacity) -> Rows | None:
        """What a row costs more for its model: no saving of waste outweighs a model that the job likes better."""
        models = models_of(self.spec)
        if len(models) < 2:
            return None
        places = {name: place for place, name in enumerate(models)}
        by_number = [places.get(name, 0) * STEP_OF_MODELS for name in capacity.models]
        found: Rows = np.array([*by_number, 0], np.int64)[capacity.model[: capacity.rows]]
        return found

    def _leaves_what_is_kept(self, capacity: Capacity) -> bool:
        count = capacity.rows
        kept = capacity.most_plain_cores[:count] < capacity.cores[:count]
        kept |= capacity.most_plain_memory[:count] < capacity.memory[:count]
        return not (self.need.gpus or self.need.shares) and bool(kept[self.eligible].any())

    def _milli_of_gang(self, capacity: Capacity, pool: str, rows: Rows) -> int:
        if self.need.exclusive:
            return self._nodes_at_most(capacity, rows) * int(capacity.gpus[rows].max(initial=0)) * WHOLE
        if self.mig is not None:
            return self.mig.milli_in[pool]
        if self.milli or not self.need.shares:
            return self.milli
        sizes = capacity.device_memory[rows]
        smallest = int(sizes[sizes > 0].min(initial=FAR))
        return self.need.units * milli_of(self.need.device_bytes, smallest)

    def _nodes_at_most(self, capacity: Capacity, rows: Rows) -> int:
        """Nodes that the gang takes of empty ones: all are full but for the last."""
        units = self.units_when_empty(capacity, rows[self.eligible[rows]])
        fewest = int(units[units > 0].min(initial=self.need.units))
        return self.need.units if self.need.spread else -(-self.need.units // fewest)

    def milli_in(self, pool: str) -> int:
        """What the gang counts for in limits there, at most: of shares by memory, as on the pool's smallest device; of
        nodes that are nobody else's, as if each were the pool's largest."""
        return self._milli_in[pool]

    def homes(self, totals: Totals, pool: str, rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """Of a pool's rows those that suit it, and how many units each would take if nothing ran there. Nodes that have
        come to have something else in all make all shapes anew, so it is counted once."""
        found = self._homes.get(pool)
        if found is None:
            suited = rows[self.eligible[rows]]
            found = self._homes[pool] = suited, self.units_when_empty(totals, suited)
        return found

    def forget(self) -> None:
        """Its costs are others, whatever has been touched since."""
        self.seen = -1

    def sync(self, capacity: Capacity) -> Costs:
        """Its costs as things are now, a row each."""
        if self.seen != capacity.touches:
            stale = waste.Stale(self.seen, self.eligible, self._besides(capacity))
            self.scale.renew(self.scale.tables, capacity, self.ask, self.costs, stale)
            self.seen = capacity.touches
        return self.costs

    def costs_on(self, capacity: Capacity, rows: Rows) -> Costs:
        """The same on a few open rows that suit it, whatever is remembered of them."""
        found = self.scale.costs(self.scale.tables, capacity, self.ask, rows)
        if self._varies:
            found = np.minimum(found + self._besides_on(capacity, rows), NO_ROOM)
        elif self.less_liked is not None:
            found = np.minimum(found + self.less_liked[rows], NO_ROOM)
        return found.astype(np.int32)

    @property
    def _varies(self) -> bool:
        """Whether what a unit costs besides its waste hangs on what is free."""
        return self.mig is not None or self.need.exclusive or self.plain

    def _besides(self, capacity: Capacity) -> Rows | None:
        """What a unit costs besides its waste, right on the rows that have changed; None if nothing."""
        if not self._varies:
            return self.less_liked
        rows = np.flatnonzero((capacity.touched[: capacity.rows] > self.seen) & self.eligible)
        found = np.zeros(capacity.rows, np.int64)
        found[rows] = self._besides_on(capacity, rows)
        return found

    def _besides_on(self, capacity: Capacity, rows: Rows) -> Rows:
        """The same on these rows, for a shape for which it varies."""
        found = np.zeros(len(rows), np.int64) if self.less_liked is None else self.less_liked[rows]
        if self.mig is not None:
            found += self.mig.costs(capacity, rows, self.scale.mig)
        if self.need.exclusive:  # the others of the node's devices are idle as well
            found += capacity.gpus[rows].astype(np.int64) * MICRO
            found[capacity.parts[rows] > 0] = NEVER
        if self.plain:
            found[~self.plain_fits(capacity, rows)] = NEVER
        return found

    def fits(self, capacity: Free, rows: Rows) -> Flags:
        """Whether a unit fits on these rows now."""
        need = self.need
        ok = self.devices_fit(capacity, rows)
        if need.cores:
            ok &= capacity.free_cores[rows] >= need.cores
        if need.memory:
            ok &= capacity.free_memory[rows] >= need.memory
        return ok & self.plain_fits(capacity, rows) if self.plain else ok

    def plain_fits(self, capacity: Free, rows: Rows) -> Flags:
        """Whether a unit without GPUs leaves what is kept for them."""
        need = self.need
        ok: Flags = capacity.plain_cores[rows] >= need.cores
        if need.memory:
            ok &= capacity.plain_memory[rows] >= need.memory
        return ok

    def devices_fit(self, capacity: Free, rows: Rows) -> Flags:
        """Whether these rows are open and have the devices of a unit free, or as much of one."""
        ok: Flags = self.may_use(capacity, rows) & (capacity.whole[rows] >= self.whole)
        if self.mig is not None:
            ok &= self.mig.units_on(capacity, rows) > 0
        if self.need.shares:
            ok &= self.shares_on(capacity, rows).any(axis=1)
        return ok

    def may_use(self, capacity: Free, rows: Rows) -> Flags:
        """Whether these rows are open, and empty where nobody else may be there."""
        if not self.need.exclusive:
            return capacity.open[rows]
        ok: Flags = capacity.open[rows] & (capacity.parts[rows] == 0)
        return ok

    def units_on(self, capacity: Free, rows: Rows, *, kept: bool = True) -> NDArray[np.int64]:
        """How many units fit on each of these rows now: one at most where they are spread. Not `kept`: as if nothing
        were kept for GPUs."""
        need = self.need
        most = 1 if need.spread else need.units
        units = np.full(len(rows), most, np.int64)
        if self.mig is not None:
            units = np.minimum(units, self.mig.units_on(capacity, rows))
        elif need.gpus:
            units = np.minimum(units, capacity.whole[rows] // need.gpus)
        if need.shares:
            units = np.minimum(units, self.shares_on(capacity, rows).sum(axis=1))
        if need.cores:
            units = np.minimum(units, capacity.free_cores[rows] // need.cores)
        if need.memory:
            units = np.minimum(units, capacity.free_memory[rows] // need.memory)
        if self.plain and kept:
            units = np.minimum(
                units, self._plain_units(capacity.plain_cores[rows], capacity.plain_memory[rows])
            )
        return np.where(self.may_use(capacity, rows), np.maximum(units, 0), 0)

    def units_when_empty(self, totals: Totals, rows: Rows) -> NDArray[np.int64]:
        """How many units each of these rows would take if nothing ran there."""
        need = self.need
        units = np.full(len(rows), 1 if need.spread else need.units, np.int64)
        if self.mig is not None:
            units = np.minimum(units, self.mig.units_when_empty(totals.gpus, rows))
        elif need.gpus:
            units = np.minimum(units, totals.gpus[rows] // need.gpus)
        if need.shares:
            each = WHOLE // need.milli if need.milli else WHOLE
            shares = totals.gpus[rows].astype(np.int64) * each
            if need.device_bytes:
                by_bytes = np.minimum(totals.device_memory[rows] // need.device_bytes, each)
                shares = by_bytes.sum(axis=1)
            units = np.minimum(units, shares)
        if need.cores:
            units = np.minimum(units, totals.cores[rows] // need.cores)
        if need.memory:
            units = np.minimum(units, totals.memory[rows] // need.memory)
        if self.plain:
            most = totals.most_plain_cores[rows], totals.most_plain_memory[rows]
            units = np.minimum(units, self._plain_units(*most))
        return units

    def _plain_units(self, cores: NDArray[np.int64], memory: NDArray[np.int64]) -> NDArray[np.int64]:
        """Units without GPUs that so many cores and bytes take."""
        units = cores // max(self.need.cores, 1)
        return np.minimum(units, memory // self.need.memory) if self.need.memory else units

    def shares_of_one(self, capacity: Capacity, row: int) -> int:
        """How many shares (or instances) an empty device of the row takes: one at least."""
        if self.mig is not None:
            return max(self.mig.in_one(row), 1)
        most = WHOLE // self.need.milli if self.need.milli else WHOLE
        if self.need.device_bytes:
            most = min(most, int(capacity.device_memory[row].max()) // self.need.device_bytes)
        return max(most, 1)

    def shares_on(self, capacity: Parts, rows: Rows) -> NDArray[np.int64]:
        """How many shares each device of these rows still takes."""
        need = self.need
        shares = capacity.milli[rows].astype(np.int64)
        if need.milli:
            shares //= need.milli
        if need.device_bytes:
            shares = np.minimum(shares, capacity.device_bytes[rows] // need.device_bytes)
        return shares
