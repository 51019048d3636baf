"""Where the shapes that woke in a pass still may fit, so that one which fits nowhere any more is closed without a try.

Comes in: the shapes, the rows that have more free than the last pass left, on which of them each fits. Goes out: the
shapes that have lost their last row. Called by: memory, after starts. What is said here is that a unit *may* fit: a
shape that has lost all its rows would be tried in vain, and one that has not is tried.
"""

from __future__ import annotations

import numpy as np

from orchestrator.ledger.capacity import Flags, Rows


class Awake:
    """`numbers` [S] of shapes, ascending `rows` [R], `fits` [S, R]."""

    def __init__(self, numbers: Rows, rows: Rows, fits: Flags) -> None:
        self.numbers = numbers
        self._rows = rows
        self._fits = fits
        self._left: Rows = np.count_nonzero(fits, axis=1)

    def known(self, rows: Rows) -> Rows:
        """Those of the rows that matter to any."""
        if not len(self.numbers):
            return rows[:0]
        return rows[np.isin(rows, self._rows)]

    def lose(self, rows: Rows, fits: Flags) -> Rows:
        """The numbers of the shapes that have lost their last row. `fits` [S, len(rows)]: on which of these they fit
        now."""
        at = self._rows.searchsorted(rows)
        before = self._left > 0
        self._left = self._left - np.count_nonzero(self._fits[:, at] & ~fits, axis=1)
        self._fits[:, at] &= fits
        lost: Rows = self.numbers[before & (self._left == 0)]
        return lost


ASLEEP = Awake(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 0), bool))
