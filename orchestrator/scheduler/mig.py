"""Where MIG instances go: at the legal place that leaves most to what people ask for.

Comes in: the pools that have a profile, the mix of profiles that jobs have asked for of late, masks of held slices.
Goes out: how many units fit on a row, what one costs there, the exact instances that a row gives. Called by: shapes
(asks for one shape), place (takes).

A mask of held slices has 256 values at most, so all that can be said of one GPU stands in tables: for each profile how
many instances still fit, what the best place for one more costs, and where that is. What a place costs is what the
profiles of the mix could use of the GPU before, less what they could use after. Instances of one profile never overlap
at their legal places: how many fit does not hang on the order in which they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import WHOLE, Capacity, Rows
from orchestrator.ledger.slices import Slices
from orchestrator.model.attempt import Placement
from orchestrator.model.cluster import Pool
from orchestrator.model.mig import MigInstance, MigLayout, MigProfile
from orchestrator.model.need import Need, profile_in

MASKS: Final = 256
NO_PLACE: Final = 1 << 40  # micro-GPU: no saving of cores beside it makes that less than `waste.NO_FIT`
MICRO: Final = 1000  # micro-GPU in a thousandth
ASKED: Final = 1000  # weight of a profile that all of the mix asks for; one that nobody asks for has 1
Weights = tuple[tuple[str, int], ...]  # profile -> how much of the mix asks for it, sorted by name
Counts = NDArray[np.int64]


class Held(Protocol):
    """What is free: `Capacity`, or a copy of a part of it."""

    @property
    def milli(self) -> NDArray[np.int32]: ...
    @property
    def slices(self) -> Slices: ...


class Table(NamedTuple):
    """One profile on GPUs of one layout, by the mask of slices that are held."""

    cost: Counts  # [256] of the best place for one more, in micro-GPU; NO_PLACE where there is none
    start: tuple[int, ...]  # [256] that place; -1 where there is none
    profile: MigProfile
    milli: int  # of an instance


@lru_cache(maxsize=256)
def table(layout: MigLayout, profile: MigProfile, weights: Weights) -> Table:
    """The table of a profile under a mix. Places that cost the same: the lowest."""
    worth = [_worth(layout, held, dict(weights)) for held in range(MASKS)]
    best = [_best(profile, held, worth) for held in range(MASKS)]
    return Table(
        np.array([cost for cost, _ in best], np.int64),
        tuple(start for _, start in best),
        profile,
        layout.milli(profile),
    )


def _worth(layout: MigLayout, held: int, weights: dict[str, int]) -> int:
    """What the mix can use of a GPU, on average over the profiles, in micro-GPU. What nobody asks for counts a little:
    where the mix does not care, wide places stay free."""
    total = sum(weights.get(name, 0) for name in layout.names())
    each = ((weights.get(one.name, 0) * ASKED // max(total, 1) + 1, one) for one in layout.profiles)
    usable = sum(weight * one.count(held) * layout.milli(one) * MICRO for weight, one in each)
    return usable // (ASKED + len(layout.profiles))


def _best(profile: MigProfile, held: int, worth: list[int]) -> tuple[int, int]:
    free = [start for start in profile.starts if not held & profile.bits(start)]
    costs = ((worth[held] - worth[held | profile.bits(start)], start) for start in free)
    return min(costs, default=(NO_PLACE, -1))


def weights_of(counts: Mapping[str, int]) -> Weights:
    """Instances asked for of each profile, as the key of tables."""
    return tuple(sorted(counts.items()))


class Instances:
    """What one shape takes of the pools that have its profile."""

    __slots__ = ("_counts", "_kind", "_layouts", "_milli", "_seen", "_tables", "each", "milli_in", "need")

    def __init__(self, need: Need, pools: list[Pool], capacity: Capacity, rows: Mapping[str, Rows]) -> None:
        self.need = need
        self.milli_in: dict[str, int] = {}  # of the gang, by pool
        self._kind = np.zeros(len(capacity.open), np.int64)  # a row's place among the layouts
        layouts: dict[tuple[MigLayout, MigProfile], int] = {}
        for pool in pools:
            layout, profile = _divided(pool, need.mig)
            number = layouts.setdefault((layout, profile), len(layouts))
            self._kind[rows[pool.name]] = number
            self.milli_in[pool.name] = need.units * need.gpus * layout.milli(profile)
        self._layouts = tuple(layouts)
        self._counts = np.array(
            [[one.count(held) for held in range(MASKS)] for _, one in layouts] or np.zeros((1, MASKS)),
            np.int64,
        )
        self._milli = np.array([layout.milli(one) for layout, one in layouts] or [WHOLE], np.int64)
        self.each = int(self._milli.min())  # milli of one instance at least
        self._seen: Weights | None = None
        self._tables: tuple[Table, ...] = ()

    def unit_milli(self, rows: Rows) -> Counts:
        """What a unit counts for on each of these rows."""
        found: Counts = self._milli[self._kind[rows]] * self.need.gpus
        return found

    def units_on(self, free: Held, rows: Rows) -> Counts:
        """How many units these rows have instances for."""
        found: Counts = self.fitting(free, rows).sum(axis=1) // self.need.gpus
        return found

    def units_when_empty(self, gpus: NDArray[np.int16], rows: Rows) -> Counts:
        """The same if nothing ran there."""
        found: Counts = self._counts[self._kind[rows], 0] * gpus[rows] // self.need.gpus
        return found

    def in_one(self, row: int) -> int:
        """How many instances an empty GPU of the row takes."""
        return int(self._counts[self._kind[row], 0])

    def fitting(self, free: Held, rows: Rows) -> Counts:
        """[K, D] instances that fit on each device. The thousandths count too: of a device that is gone, that somebody
        holds otherwise, or that is kept for a job before this one, none are free."""
        kind, milli = self._kind[rows][:, None], free.milli[rows]
        masks = free.slices.of(rows, milli.shape[1])
        found: Counts = np.minimum(self._counts[kind, masks], milli // self._milli[kind])
        return found

    def elsewhere(self, free: Held, rows: Rows) -> tuple[int, int]:
        """Free places on these rows, and devices without one that have as many slices free, but not together."""
        fitting, kind = self.fitting(free, rows), self._kind[rows][:, None]
        scattered = (fitting == 0) & (free.milli[rows] >= self._milli[kind])
        return int(fitting.sum()), int(scattered.sum())

    def places(self) -> str:
        """The slices of the legal places, for people; those of the first pool where pools differ."""
        return self._layouts[0][1].places() if self._layouts else "-"

    # --- taking -------------------------------------------------------------------------------------------------

    def costs(self, free: Held, rows: Rows, weights: Weights) -> Counts:
        """What the instances of one unit cost on each row, taken one after the other as `take` does; NO_PLACE where
        they do not fit."""
        tables = self._under(weights)
        kind, left = self._kind[rows], free.milli[rows].astype(np.int64)
        masks = free.slices.of(rows, left.shape[1])
        total, here = np.zeros(len(rows), np.int64), np.arange(len(rows))
        for _ in range(self.need.gpus):
            cost = np.stack([one.cost for one in tables])[kind[:, None], masks]
            cost[left < self._milli[kind][:, None]] = NO_PLACE
            slot = cost.argmin(axis=1)
            least = cost[here, slot]
            total = np.where((least >= NO_PLACE) | (total >= NO_PLACE), NO_PLACE, total + least)
            self._advance(tables, kind, masks, left, slot)
        return total

    def _advance(
        self,
        tables: tuple[Table, ...],
        kind: Counts,
        masks: NDArray[np.uint8],
        left: Counts,
        slot: NDArray[np.intp],
    ) -> None:
        """Take the best place on that slot of each row, where there is one."""
        here = np.arange(len(kind))
        bits = np.stack([_bits(one) for one in tables])
        masks[here, slot] |= bits[kind, masks[here, slot]]
        left[here, slot] -= self._milli[kind]

    def take(
        self, capacity: Capacity, row: int, units: int, weights: Weights, *, lit_first: bool = False
    ) -> Placement:
        """The exact instances of so many units: each at the place that costs least, then on the lowest slot.
        `lit_first`: on GPUs that draw power already, as long as those have places."""
        one = self._under(weights)[self._kind[row]]
        masks = capacity.slices.of(np.array([row]), capacity.milli.shape[1])[0].tolist()
        left = capacity.milli[row].tolist()
        found: list[MigInstance] = []
        for _ in range(units * self.need.gpus):
            able = (
                slot for slot, milli in enumerate(left) if milli >= one.milli and one.start[masks[slot]] >= 0
            )
            slot = min(able, key=lambda at: (lit_first and left[at] == WHOLE, int(one.cost[masks[at]]), at))
            found.append(MigInstance(slot, one.profile.name, one.start[masks[slot]], one.profile.size))
            masks[slot] |= found[-1].bits
            left[slot] -= one.milli
        return self._part(
            capacity.names[row], units, sorted(found, key=lambda at: (at.slot, at.start)), one.milli
        )

    def _part(self, node: str, units: int, instances: list[MigInstance], milli: int) -> Placement:
        need = self.need
        held: dict[int, int] = {}
        for one in instances:
            held[one.slot] = held.get(one.slot, 0) + milli
        return Placement(
            node=node,
            slots=tuple(held),
            tasks=need.tasks * units,
            cores=need.cores * units,
            memory=need.memory * units,
            milli=tuple(held.values()),
            instances=tuple(instances),
        )

    def _under(self, weights: Weights) -> tuple[Table, ...]:
        if self._seen != weights:
            self._seen = weights
            self._tables = tuple(table(layout, profile, weights) for layout, profile in self._layouts)
        return self._tables


@lru_cache(maxsize=256)
def _bits_of(profile: MigProfile, start: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.array([profile.bits(one) if one >= 0 else 0 for one in start], np.uint8)


def _bits(one: Table) -> NDArray[np.uint8]:
    """[256] the slices of the best place."""
    return _bits_of(one.profile, one.start)


def _divided(pool: Pool, mig: str) -> tuple[MigLayout, MigProfile]:
    profile = profile_in(pool, mig)
    if profile is None or pool.gpu is None or pool.gpu.layout is None:
        raise ValueError(f"pool {pool.name} has no MIG profile {mig}")
    return pool.gpu.layout, profile
