"""Which free devices a unit gets: close to each other, and so that others stay close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.capacity import Capacity, mask_of, slots_of
from orchestrator.ledger.nearness import groups_of, nearest
from orchestrator.model.attempt import Placement
from orchestrator.model.node import Device

TWO = (0b00001111, 0b11110000)  # two sockets of four


@pytest.mark.parametrize(
    ("free", "each", "units", "want"),
    [
        pytest.param(0b11111111, 1, 1, (0,), id="nothing is begun: the lowest"),
        pytest.param(0b11111110, 1, 1, (1,), id="the socket that is begun"),
        pytest.param(0b11101111, 1, 1, (5,), id="the socket that is begun, be it the upper one"),
        pytest.param(0b01111000, 1, 1, (3,), id="the one with least left"),
        pytest.param(0b01111000, 2, 1, (4, 5), id="the one that holds both"),
        pytest.param(0b11111110, 4, 1, (4, 5, 6, 7), id="a whole socket is there"),
        pytest.param(
            0b01110111, 4, 1, (0, 1, 2, 4), id="no socket holds four: most of one, the rest of the other"
        ),
        pytest.param(0b01110111, 2, 2, (0, 1, 4, 5), id="two units, none of them over both sockets"),
        pytest.param(0b11111111, 8, 1, tuple(range(8)), id="all of it"),
        pytest.param(0b00010001, 3, 1, (0, 4), id="fewer than are asked for: what there is"),
    ],
)
def test_a_unit_gets(free: int, each: int, units: int, want: tuple[int, ...]) -> None:
    assert slots_of(nearest(free, each, units, TWO)) == want


def test_where_nobody_says_which_hang_together_the_lowest_are_taken() -> None:
    def devices(*numa: int) -> tuple[Device, ...]:
        return tuple(Device(slot, "A", numa=of) for slot, of in enumerate(numa))

    assert groups_of(devices(0, 0, 1, 1)) == (0b0011, 0b1100)
    assert groups_of(devices(1, 0, 1, 0)) == (0b0101, 0b1010)
    assert groups_of(devices(0, 0, 0)) == ()
    assert groups_of(devices(0, 1, -1)) == ()
    assert groups_of(()) == ()


@given(
    free=st.integers(0, 255),
    each=st.integers(0, 8),
    units=st.integers(1, 8),
    cut=st.lists(st.integers(0, 2), min_size=8, max_size=8),
)
def test_free_slots_alone_are_given_and_as_many_as_were_asked_for(
    free: int, each: int, units: int, cut: list[int]
) -> None:
    groups = tuple(mask_of(tuple(at for at in range(8) if cut[at] == group)) for group in range(3))
    found = nearest(free, each, units, groups)
    assert not found & ~free
    assert found.bit_count() == min(each * units, free.bit_count())
    if units == 1 and any((free & group).bit_count() >= each for group in groups):
        assert any(not found & ~group for group in groups), "it lies in one although one holds it"


def test_a_node_that_says_it_gives_devices_of_one_socket() -> None:
    capacity = Capacity()
    capacity.add("n1", "p")
    capacity.resize("n1", tuple(Device(slot, "A", numa=slot // 4) for slot in range(8)), 8, 100)
    capacity.set_open("n1", True)
    capacity.take(Placement("n1", (0,), 1))
    assert capacity.nearest(0, 4) == (4, 5, 6, 7)
    assert capacity.nearest(0, 2) == (1, 2)
