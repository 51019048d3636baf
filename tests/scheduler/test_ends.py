"""When devices are free, kept from pass to pass, and the nodes that are free first: the same as counted anew."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger.capacity import FAR, WHOLE, Capacity
from orchestrator.model.attempt import Placement
from orchestrator.model.node import Device
from orchestrator.scheduler.earliest import _first_of_one
from orchestrator.scheduler.ends import GONE, Ends

pytestmark = pytest.mark.property
NODES, SLOTS = 5, 4


def made(dice: random.Random) -> Capacity:
    """Nodes of up to four devices."""
    capacity = Capacity()
    for number in range(NODES):
        capacity.add(f"n-{number}", "p")
        devices = tuple(Device(slot, "A", 1 << 30) for slot in range(dice.randint(0, SLOTS)))
        capacity.resize(f"n-{number}", devices, 8, 8)
        capacity.set_open(f"n-{number}", True)
    return capacity


def counted(capacity: Capacity, row: int, count: int) -> int:
    """When so many devices of the row are free, from what holds them alone."""
    ends = [
        0 if capacity.milli[row, slot] == WHOLE else int(capacity.until_us[row, slot])
        for slot in range(capacity.until_us.shape[1])
        if capacity.there[row, slot]
    ]
    return sorted(ends)[count - 1] if count <= len(ends) else GONE


@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_it_is_what_a_look_at_everything_gives(seed: int) -> None:
    dice = random.Random(seed)
    capacity = made(dice)
    ends, taken = Ends(capacity), list[Placement]()
    rows = np.arange(NODES)
    for _ in range(30):
        row = dice.randrange(NODES)
        free = [slot for slot in range(SLOTS) if capacity.milli[row, slot] == WHOLE]
        kind = dice.random()
        if kind < 0.5 and free:
            slots = tuple(sorted(dice.sample(free, dice.randint(1, len(free)))))
            part = Placement(f"n-{row}", slots, 1, 0, 0)
            capacity.take(part, dice.choice((FAR, dice.randint(1, 99))))
            taken.append(part)
        elif kind < 0.75 and taken:
            capacity.release(taken.pop(dice.randrange(len(taken))))
        elif taken:
            capacity.set_until(dice.choice(taken), dice.randint(1, 99))
        if dice.random() < 0.5:
            count = dice.randint(1, SLOTS)
            assert ends.of(capacity, rows, count).tolist() == [
                counted(capacity, row, count) for row in range(NODES)
            ]


@given(st.integers(0, 10**9))
@settings(max_examples=200, deadline=None)
def test_those_that_are_free_first_are_found_without_sorting_all(seed: int) -> None:
    """Ties go to the lower row, wherever the line between those that are looked at and the rest falls."""
    dice = random.Random(seed)
    count = dice.randint(1, 12)
    rows = np.arange(10, 10 + count)
    units = np.array([dice.randint(1, 3) for _ in rows])
    times = np.array([dice.randint(0, 4) for _ in rows])
    wanted = dice.randint(1, 14)

    order = sorted(range(count), key=lambda at: (times[at], at))
    want, left = list[tuple[int, int]](), wanted
    for at in order:
        if left > 0:
            want.append((int(rows[at]), min(int(units[at]), left)))
            left -= want[-1][1]
    found = _first_of_one(rows, units, times, wanted)

    if left > 0:
        assert found is None
    else:
        assert found == (int(times[order[len(want) - 1]]), sorted(want))
