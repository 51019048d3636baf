"""What is free: the arrays against a naive model, and each refusal."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchestrator.ledger.capacity import WHOLE, Capacity, lowest, mask_of
from orchestrator.model.attempt import Placement
from orchestrator.model.codec import decode, encode
from orchestrator.model.mig import MigInstance
from orchestrator.model.node import Device

GIB = 1 << 30


def devices(*slots: int) -> tuple[Device, ...]:
    return tuple(Device(slot, "A", 16 * GIB) for slot in slots)


def part(*slots: int, cores: int = 0, memory: int = 0, node: str = "n1") -> Placement:
    return Placement(node, slots, 1, cores, memory)


def share(slot: int, milli: int, size: int = 0, node: str = "n1") -> Placement:
    return Placement(node, (slot,), 1, milli=(milli,), device_bytes=(size,))


@pytest.fixture
def capacity() -> Capacity:
    """Two open nodes with four devices, eight cores, a hundred bytes."""
    found = Capacity()
    for name in ("n1", "n2"):
        found.add(name, "p")
        found.resize(name, devices(0, 1, 2, 3), 8, 100)
        found.set_open(name, True)
    return found


def test_taking_and_giving_back(capacity: Capacity) -> None:
    capacity.take(part(1, 2, cores=3, memory=40, node="n2"))
    room = capacity.at("n2")
    assert (room.free, room.free_cores, room.free_memory) == (0b1001, 5, 60)
    assert capacity.whole[:2].tolist() == [4, 2]
    assert capacity.milli[1].tolist()[:4] == [WHOLE, 0, 0, WHOLE]
    capacity.release(part(1, 2, cores=3, memory=40, node="n2"))
    assert capacity.at("n2") == capacity.at("n1")


def test_shares_of_one_device_add_up_to_it(capacity: Capacity) -> None:
    capacity.take(share(1, 500, 4 * GIB))
    capacity.take(share(1, 500, 4 * GIB))
    assert capacity.whole[0] == 3
    assert capacity.milli[0, 1] == 0
    with pytest.raises(ValueError, match="device 1 has not 1 milli free"):
        capacity.take(share(1, 1))
    with pytest.raises(ValueError, match="not free"):
        capacity.take(part(1))
    capacity.release(share(1, 500, 4 * GIB))
    assert capacity.milli[0, 1] == 500
    assert capacity.device_bytes[0, 1] == 12 * GIB
    capacity.release(share(1, 500, 4 * GIB))
    assert capacity.at("n1") == capacity.at("n2")
    assert capacity.device_bytes[0].tolist() == capacity.device_bytes[1].tolist()


def test_a_closed_node_keeps_its_books(capacity: Capacity) -> None:
    capacity.take(part(0, cores=1, memory=1))
    capacity.set_open("n1", False)
    capacity.release(part(0, cores=1, memory=1))
    assert not capacity.at("n1").open
    assert capacity.at("n1").free == 0b1111


@pytest.mark.parametrize("slots", [(0,), (0, 1), (4,), (63,)])
def test_what_is_not_free_is_refused_and_nothing_changes(capacity: Capacity, slots: tuple[int, ...]) -> None:
    capacity.take(part(0))
    before = capacity.at("n1"), capacity.shares_of("n1")
    with pytest.raises(ValueError, match="not free"):
        capacity.take(part(*slots, cores=1))
    assert (capacity.at("n1"), capacity.shares_of("n1")) == before


@pytest.mark.parametrize("given_back", [part(1), part(0, 1), part(9), share(0, 1001), share(1, 1)])
def test_what_nobody_held_is_not_taken_back(capacity: Capacity, given_back: Placement) -> None:
    capacity.take(part(0))
    before = capacity.at("n1"), capacity.shares_of("n1")
    with pytest.raises(ValueError, match="was not held"):
        capacity.release(given_back)
    assert (capacity.at("n1"), capacity.shares_of("n1")) == before


def test_devices_that_go_and_come_back_keep_their_holder(capacity: Capacity) -> None:
    capacity.take(part(0, 1, cores=2, memory=2))
    capacity.resize("n1", devices(0, 2, 3), 8, 100)
    assert capacity.at("n1").free == 0b1100
    capacity.resize("n1", devices(0, 1, 2, 3), 8, 100)
    assert capacity.at("n1").free == 0b1100
    capacity.release(part(0, 1, cores=2, memory=2))
    assert capacity.at("n1").free == 0b1111


def test_devices_that_are_gone_stay_gone_when_given_back(capacity: Capacity) -> None:
    capacity.take(part(0, 1, cores=2, memory=2))
    capacity.resize("n1", devices(0, 2, 3), 8, 100)
    capacity.release(part(0, 1, cores=2, memory=2))
    assert capacity.at("n1").free == 0b1101
    assert capacity.milli[0].tolist()[:4] == [WHOLE, 0, WHOLE, WHOLE]


def test_work_that_runs_holds_what_its_node_does_not_report(capacity: Capacity) -> None:
    capacity.hold(part(4, 5))
    with pytest.raises(ValueError, match="held already"):
        capacity.hold(part(5))
    assert capacity.at("n1").free == 0b1111
    capacity.resize("n1", devices(0, 1, 2, 3, 4, 5), 8, 100)
    assert capacity.at("n1").free == 0b1111


def test_rows_and_slots_grow_and_what_is_there_stays(capacity: Capacity) -> None:
    capacity.take(part(3, cores=1))
    for number in range(200):
        capacity.add(f"more-{number}", "q")
    capacity.resize("more-7", devices(*range(20)), 1, 1)
    assert capacity.at("n1").free == 0b0111
    assert capacity.gpus[capacity.index["more-7"]] == 20
    assert capacity.kinds == {"p": {(8, 100): 2}, "q": {(0, 0): 199, (1, 1): 1}}


def test_whoever_looks_again_learns_which_rows_were_touched(capacity: Capacity) -> None:
    seen = capacity.touches
    assert not capacity.since(seen).any()
    capacity.take(part(0, node="n2"))
    assert np.flatnonzero(capacity.since(seen)).tolist() == [1]
    seen = capacity.touches
    capacity.set_open("n1", False)
    assert np.flatnonzero(capacity.since(seen)).tolist() == [0]
    assert np.flatnonzero(capacity.since(0)).tolist() == [0, 1]


@given(slots=st.sets(st.integers(0, 20)), count=st.integers(0, 20))
def test_the_lowest_slots_of_a_mask(slots: set[int], count: int) -> None:
    ordered = tuple(sorted(slots))
    if count <= len(ordered):
        assert lowest(mask_of(ordered), count) == ordered[:count]


@dataclass
class Naive:
    """A node as milli by slot."""

    there: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)
    cores: int = 0
    is_open: bool = False
    work: list[Placement] = field(default_factory=list)


SLOTS = st.sets(st.integers(0, 3), max_size=4)
NAMES = st.sampled_from(["n1", "n2", "n3"])


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.capacity = Capacity()
        self.naive = {name: Naive() for name in ("n1", "n2", "n3")}
        for name in self.naive:
            self.capacity.add(name, "p")

    @rule(name=NAMES, slots=SLOTS, cores=st.integers(0, 9))
    def resize(self, name: str, slots: set[int], cores: int) -> None:
        self.capacity.resize(name, devices(*sorted(slots)), cores, 0)
        self.naive[name].there, self.naive[name].cores = slots, cores

    @rule(name=NAMES, is_open=st.booleans())
    def set_open(self, name: str, is_open: bool) -> None:
        self.capacity.set_open(name, is_open)
        self.naive[name].is_open = is_open

    @rule(name=NAMES, slots=SLOTS, cores=st.integers(0, 3), milli=st.sampled_from([0, 300, 500, 1000]))
    def take(self, name: str, slots: set[int], cores: int, milli: int) -> None:
        node, ordered = self.naive[name], tuple(sorted(slots))
        asked = Placement(name, ordered, 1, cores, 0, (milli,) * len(ordered) if milli else ())
        fits = all(
            slot in node.there and node.held.get(slot, 0) + (milli or WHOLE) <= WHOLE for slot in ordered
        )
        if not fits:
            with pytest.raises(ValueError, match="free"):
                self.capacity.take(asked)
            return
        self.capacity.take(asked)
        node.work.append(asked)
        for slot in ordered:
            node.held[slot] = node.held.get(slot, 0) + (milli or WHOLE)

    @rule(name=NAMES, at=st.integers(0, 9))
    def release(self, name: str, at: int) -> None:
        node = self.naive[name]
        if node.work:
            done = node.work.pop(at % len(node.work))
            self.capacity.release(done)
            for slot, milli in zip(done.slots, done.milli or (WHOLE,) * len(done.slots), strict=True):
                node.held[slot] -= milli

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "naive"):
            return
        for row, (name, node) in enumerate(self.naive.items()):
            mine = self.capacity.at(name)
            free = {slot for slot in node.there if not node.held.get(slot)}
            assert mine.free == mask_of(tuple(free))
            assert mine.open == node.is_open
            assert mine.free_cores == node.cores - sum(work.cores for work in node.work)
            assert self.capacity.whole[row] == len(free)
            milli = [WHOLE - node.held.get(slot, 0) if slot in node.there else 0 for slot in range(4)]
            assert self.capacity.milli[row].tolist()[:4] == milli


TestMachine = Machine.TestCase


def test_an_instance_is_written_with_its_place_and_read_back() -> None:
    """An event of a start is as it was for all that has no instances, and older readers pass over the rest."""
    part = Placement("n", (2,), milli=(500,), instances=(MigInstance(2, "3g.40gb", 4, 4),))
    plain = {
        "node": "n",
        "slots": [2],
        "milli": [500],
        "instances": [{"slot": 2, "profile": "3g.40gb", "start": 4, "size": 4}],
    }
    assert encode(part) == plain
    assert decode(Placement, plain) == part
    assert "instances" not in encode(Placement("n", (2,), milli=(500,)))
