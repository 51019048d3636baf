"""Which memory slices of each device MIG instances hold: a byte a device, a bit a slice.

Comes in: parts of gangs that name instances. Goes out: masks of held slices, by row and slot. Called by: capacity,
which counts the same instances as shares of their devices; scheduler/mig (reads masks).

Nothing is kept, and nothing copied, before the first instance is held: a cluster without MIG pays for none of this.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orchestrator.model.attempt import Placement
from orchestrator.model.mig import MigInstance

Masks = NDArray[np.uint8]


class Slices:
    """The masks of all nodes; rows and slots beyond those that were ever held count as free."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: Masks = np.zeros((0, 0), np.uint8)

    def copy(self) -> Slices:
        """As things are now."""
        found = Slices()
        if self.held.size:
            found.held = self.held.copy()
        return found

    def of(self, rows: NDArray[np.int64], slots: int) -> Masks:
        """[K, slots] what is held on each of these rows."""
        found = np.zeros((len(rows), slots), np.uint8)
        have = min(slots, self.held.shape[1])
        if have and len(self.held):
            inside = rows < len(self.held)
            found[inside, :have] = self.held[rows[inside], :have]
        return found

    def freed(self, now: Slices, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[K] whether any slice of these rows that was held here is free by now."""
        slots = self.held.shape[1]
        gone = self.of(rows, slots) & ~now.of(rows, slots)
        found: NDArray[np.bool_] = np.logical_or.reduce(gone != 0, axis=1)
        return found

    def overlap(self, row: int, part: Placement) -> MigInstance | None:
        """The first instance of the part that would stand on a slice that is held, also by another of the part."""
        taken: dict[int, int] = {}
        for one in part.instances:
            mask = taken.get(one.slot)
            mask = self._at(row, one.slot) if mask is None else mask
            if mask & one.bits:
                return one
            taken[one.slot] = mask | one.bits
        return None

    def lacking(self, row: int, part: Placement) -> MigInstance | None:
        """The first instance of the part of which a slice is not held."""
        return next((one for one in part.instances if one.bits & ~self._at(row, one.slot)), None)

    def hold(self, row: int, part: Placement) -> None:
        """They are held from now on."""
        if part.instances:
            self._fit(row + 1, 1 + max(one.slot for one in part.instances))
        for one in part.instances:
            self.held[row, one.slot] |= one.bits

    def free(self, row: int, part: Placement) -> None:
        """They are free again."""
        for one in part.instances:
            self.held[row, one.slot] &= 0xFF & ~one.bits

    def _at(self, row: int, slot: int) -> int:
        height, width = self.held.shape
        return int(self.held[row, slot]) if row < height and slot < width else 0

    def _fit(self, rows: int, slots: int) -> None:
        height, width = self.held.shape
        if rows <= height and slots <= width:
            return
        old, height = self.held, max(height, 1 << (rows - 1).bit_length())
        self.held = np.zeros((height, max(width, slots)), np.uint8)
        self.held[: len(old), : old.shape[1]] = old
