"""Snapshots and pruning while work goes on: a little in each cycle, and right at whichever event they stand."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from orchestrator.controller import commands, upkeep
from orchestrator.ledger.apply import apply
from orchestrator.ledger.events import from_stored
from orchestrator.ledger.snapshot import to_plain
from orchestrator.ledger.state import State
from orchestrator.store.base import Snapshot
from tests.builders import ALICE, job
from tests.controller.scenes import finish, running, small
from tests.controller.world import World

MANY = 12  # jobs, and 3 nodes; a cycle takes RECORDS of them


@pytest.fixture(autouse=True)
def little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "RECORDS", 4)
    monkeypatch.setattr(upkeep, "PRUNED", 2)


def under_way(tmp_path: Path) -> World:
    """A snapshot has begun and is not there yet."""
    world = small(tmp_path, snapshot_every=10_000)
    for _ in range(MANY):
        world.do(commands.Submit(job(hold=True), ALICE, "user:alice"))
    world.core._desk.writer.since_snapshot = 10_000
    world.cycle()
    assert world.core._upkeep.busy
    assert world.store.load_snapshot() is None
    return world


def folded(world: World, seq: int) -> State:
    """What the events up to one come to."""
    state = State()
    for event in world.store.tail(0):
        if event.seq <= seq:
            apply(state, from_stored(event))
    return state


def kept(world: World) -> Snapshot:
    """The snapshot, once the cycles have come to its end."""
    for _ in range(MANY):
        world.cycle()
    found = world.store.load_snapshot()
    assert found is not None
    return found


def test_a_snapshot_says_what_was_when_it_began(tmp_path: Path) -> None:
    world = under_way(tmp_path)
    begun = world.state.seq
    finish(world, running(world, job()))  # a whole life while it is being written down
    world.do(commands.CancelJob(1, "user:alice"))

    snapshot = kept(world)

    assert snapshot.seq == begun < world.state.seq
    assert snapshot.body == to_plain(folded(world, begun))


def test_the_next_one_counts_from_its_event(tmp_path: Path) -> None:
    world = under_way(tmp_path)
    finish(world, running(world, job()))

    snapshot = kept(world)

    assert world.core._desk.writer.since_snapshot == world.state.seq - snapshot.seq > 0


def test_a_cycle_does_not_wait_while_it_has_something_to_do(tmp_path: Path) -> None:
    world = under_way(tmp_path)
    assert world.core._wait_s == 0.0
    kept(world)
    assert not world.core._upkeep.busy
    assert world.core._wait_s > 0.0


def test_a_kill_in_between_leaves_the_snapshot_before(tmp_path: Path) -> None:
    world = under_way(tmp_path)
    before = to_plain(world.state)

    world.kill_controller()
    world.start_controller()

    assert world.store.load_snapshot() is None
    assert to_plain(world.state)["jobs"] == before["jobs"]


def test_old_keys_go_a_few_in_a_cycle(tmp_path: Path) -> None:
    world = small(tmp_path)
    for number in range(5):
        world.do(commands.Submit(job(hold=True), ALICE, "user:alice", key=f"old-{number}", digest="d"))
    world.clock.advance(25 * 3600)
    world.core._upkeep._pruning = True

    left = []
    for _ in range(4):
        world.cycle()
        left.append(sum(1 for number in range(5) if world.store.key(f"old-{number}")))

    assert left == [3, 1, 0, 0]
    assert not world.core._upkeep.busy


class Circle:
    """Garbage that counting references does not find."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_alive_at_one_look_and_is_garbage_later_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "COLLECTED", 0)
    monkeypatch.setattr(upkeep, "THOROUGH", 3)
    world = small(tmp_path)
    found = Circle()
    gone = weakref.ref(found)
    try:
        world.core._upkeep.step(world.core._desk.writer, idle=True)
        del found
        world.core._upkeep.step(world.core._desk.writer, idle=True)
        assert gone() is not None, "what is likely to stay is not looked at each time"
        world.core._upkeep.step(world.core._desk.writer, idle=True)
        assert gone() is None
    finally:
        gc.unfreeze()
