"""What is free on nodes, against a model that looks at every device."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchestrator.ledger.capacity import Capacity, lowest, mask_of


def two_nodes() -> Capacity:
    capacity = Capacity()
    for name in ("n1", "n2"):
        capacity.add(name, "p")
        capacity.resize(name, 0b1111, 8, 100)
        capacity.set_open(name, True)
    return capacity


def test_taking_moves_a_node_between_buckets() -> None:
    capacity = two_nodes()
    capacity.take("n2", 0b0110, 3, 40)
    node = capacity.nodes["n2"]
    assert (node.free, node.free_cores, node.free_memory) == (0b1001, 5, 60)
    assert capacity.pools["p"].buckets == [[], [], [1], [], [0]]
    capacity.release("n2", 0b0110, 3, 40)
    assert capacity.pools["p"].buckets == [[], [], [], [], [0, 1]]


def test_a_closed_node_is_in_no_bucket_and_keeps_its_books() -> None:
    capacity = two_nodes()
    capacity.take("n1", 0b1, 1, 1)
    capacity.set_open("n1", False)
    capacity.release("n1", 0b1, 1, 1)
    assert sum(map(len, capacity.pools["p"].buckets)) == 1
    assert capacity.nodes["n1"].free == 0b1111


@pytest.mark.parametrize("mask", [0b0001, 0b10000, 0b0011])
def test_what_is_not_free_is_not_taken(mask: int) -> None:
    capacity = two_nodes()
    capacity.take("n1", 0b0001, 0, 0)
    with pytest.raises(ValueError, match=r"node n1: devices 0b\d+ are not free"):
        capacity.take("n1", mask, 0, 0)
    assert capacity.nodes["n1"].free == 0b1110


@pytest.mark.parametrize("mask", [0b0010, 0b10000, 0b0011])
def test_what_nobody_holds_is_not_given_back(mask: int) -> None:
    capacity = two_nodes()
    capacity.take("n1", 0b0001, 0, 0)
    with pytest.raises(ValueError, match=r"node n1: devices 0b\d+ were not held"):
        capacity.release("n1", mask, 0, 0)


def test_a_device_that_fell_off_the_bus_stays_taken_and_comes_back_taken() -> None:
    """Else the next job would get it while its process lives."""
    capacity = two_nodes()
    capacity.take("n1", 0b0011, 2, 2)
    capacity.resize("n1", 0b1101, 8, 100)
    assert capacity.nodes["n1"].free == 0b1100
    capacity.resize("n1", 0b1111, 8, 100)
    assert capacity.nodes["n1"].free == 0b1100
    capacity.release("n1", 0b0011, 2, 2)
    assert capacity.nodes["n1"].free == 0b1111


def test_a_device_given_back_while_it_is_gone_is_free_when_it_is_there_again() -> None:
    capacity = two_nodes()
    capacity.take("n1", 0b0011, 2, 2)
    capacity.resize("n1", 0b1101, 8, 100)
    capacity.release("n1", 0b0011, 2, 2)
    assert capacity.nodes["n1"].free == 0b1101
    capacity.resize("n1", 0b1111, 8, 100)
    assert capacity.nodes["n1"].free == 0b1111


def test_running_work_holds_devices_that_the_node_does_not_report() -> None:
    capacity = two_nodes()
    capacity.hold("n1", 0b110000, 0, 0)
    with pytest.raises(ValueError, match="devices 0b100000 are held already"):
        capacity.hold("n1", 0b100000, 0, 0)
    assert capacity.nodes["n1"].free == 0b1111
    capacity.resize("n1", 0b111111, 8, 100)
    assert capacity.nodes["n1"].free == 0b1111


@given(st.sets(st.integers(0, 63)).map(sorted))
def test_masks_are_sets_of_slots(slots: list[int]) -> None:
    mask = mask_of(tuple(slots))
    assert mask.bit_count() == len(slots)
    for count in range(len(slots) + 1):
        assert lowest(mask, count) == tuple(slots[:count])


@dataclass
class Naive:
    """A node as two sets."""

    there: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    cores: int = 0
    is_open: bool = False
    work: list[tuple[set[int], int]] = field(default_factory=list)


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
        self.capacity.resize(name, mask_of(tuple(slots)), cores, 0)
        self.naive[name].there, self.naive[name].cores = slots, cores

    @rule(name=NAMES, is_open=st.booleans())
    def set_open(self, name: str, is_open: bool) -> None:
        self.capacity.set_open(name, is_open)
        self.naive[name].is_open = is_open

    @rule(name=NAMES, slots=SLOTS, cores=st.integers(0, 3))
    def take(self, name: str, slots: set[int], cores: int) -> None:
        node = self.naive[name]
        if slots <= node.there - node.held:
            self.capacity.take(name, mask_of(tuple(slots)), cores, 0)
            node.held |= slots
            node.work.append((slots, cores))
        else:
            with pytest.raises(ValueError, match="not free"):
                self.capacity.take(name, mask_of(tuple(slots)), cores, 0)

    @rule(name=NAMES, at=st.integers(0, 9))
    def release(self, name: str, at: int) -> None:
        node = self.naive[name]
        if node.work:
            slots, cores = node.work.pop(at % len(node.work))
            self.capacity.release(name, mask_of(tuple(slots)), cores, 0)
            node.held -= slots

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "naive"):
            return
        buckets: dict[int, list[int]] = {}
        for order, (name, node) in enumerate(self.naive.items()):
            mine = self.capacity.nodes[name]
            assert mine.free == mask_of(tuple(node.there - node.held))
            assert mine.free_cores == node.cores - sum(cores for _, cores in node.work)
            if node.is_open:
                buckets.setdefault(len(node.there - node.held), []).append(order)
        found = {count: bucket for count, bucket in enumerate(self.capacity.pools["p"].buckets) if bucket}
        assert found == buckets


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestMachine = pytest.mark.property(Machine.TestCase)
