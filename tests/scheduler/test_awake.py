"""Shapes that woke and lose the rows on which they may fit, against counting all of it anew."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.scheduler.awake import ASLEEP, Awake


@given(st.data())
def test_a_shape_is_lost_with_its_last_row_and_once(data: st.DataObject) -> None:
    """Rows lose fits in any order, some of them several times; rows that woke nobody do not matter."""
    shapes, count = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, 20), min_size=count, max_size=count))), np.int64)
    flags = st.lists(st.booleans(), min_size=shapes * count, max_size=shapes * count)
    fits = np.array(data.draw(flags)).reshape(shapes, count)
    numbers = np.arange(10, 10 + shapes, dtype=np.int64)
    awake, now = Awake(numbers, rows, fits.copy()), fits
    lost: list[int] = []
    for _ in range(4):
        some = np.array(sorted(data.draw(st.sets(st.integers(0, 20)))), np.int64)
        known = awake.known(some)
        assert known.tolist() == [row for row in some.tolist() if row in rows]
        after = now & np.array(data.draw(flags)).reshape(shapes, count)
        at = np.searchsorted(rows, known)
        now = now.copy()
        now[:, at] = after[:, at]
        lost += awake.lose(known, now[:, at]).tolist()
    gone = fits.any(axis=1) & ~now.any(axis=1)
    assert sorted(lost) == numbers[gone].tolist()


def test_where_nobody_woke_nothing_is_lost() -> None:
    assert not len(ASLEEP.known(np.arange(3)))
