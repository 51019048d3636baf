"""When devices are free: what the choice of nodes to keep looks at, kept from pass to pass.

Comes in: `Capacity`. Goes out: times by row. Called by: earliest; `Memory` has one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import FAR, WHOLE, Capacity, Rows

Times = NDArray[np.int64]  # UTC microseconds; 0: now
GONE = FAR + 1  # of a slot without a device


class Ends:
    """When the devices of each row are free at the latest, the first of them first: column k says when k + 1 are. A
    pure function of what is held, of which only rows that have changed are looked at again."""

    def __init__(self, capacity: Capacity) -> None:
        self._ends = np.full((capacity.rows, capacity.until_us.shape[1]), GONE, np.int64)
        self._seen = self._timed = -1

    def of(self, capacity: Capacity, rows: Rows, count: int) -> Times:
        """When each of these rows has so many devices free."""
        if (self._seen, self._timed) != (capacity.touches, capacity.timings):
            known = len(self._ends)
            stale = (capacity.touched[:known] > self._seen) | (capacity.timed[:known] > self._timed)
            self._renew(capacity, np.flatnonzero(stale))
            self._seen, self._timed = capacity.touches, capacity.timings
        found: Times = self._ends[rows, count - 1]
        return found

    def _renew(self, capacity: Capacity, rows: Rows) -> None:
        until = np.where(capacity.milli[rows] == WHOLE, 0, capacity.until_us[rows])
        self._ends[rows] = np.sort(np.where(capacity.there[rows], until, GONE), axis=1)
