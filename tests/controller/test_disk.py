"""When the disk or a handler fails in the middle of a cycle: whoever waits is told, nothing else hears of it, nothing
is lost or doubled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from orchestrator.controller import commands, intake
from orchestrator.controller.inbox import Item
from orchestrator.controller.loop import MOST_AGAIN
from orchestrator.ledger.events import StoredEvent
from orchestrator.model.clock import SECOND
from orchestrator.model.errors import Fenced, GanglineError, Unavailable
from orchestrator.model.ids import AttemptId
from orchestrator.store.base import AppliedRow, HistoryRow, KeyRow
from tests.builders import ALICE, job
from tests.controller.invariants import check_world
from tests.controller.scenes import ending_of, finish, kinds, ledger, running, small, wanted
from tests.controller.test_machine import Machine
from tests.controller.test_orphans import plant
from tests.controller.world import Answered, World

FULL = Unavailable("ledger.disk-full", "can't write to the ledger: no space left")


class Failing:
    """The world's store, whose next appends fail: `late` after having really written."""

    def __init__(self, world: World) -> None:
        self.store = world.store
        self._append = world.store.append
        self.fail: list[bool | None] = []  # for each coming append: None, or whether it fails late
        self.failed = 0
        self.count = 0
        world.store.append = self.append  # type: ignore[method-assign]

    def append(
        self,
        events: Sequence[StoredEvent],
        ended: Sequence[HistoryRow] = (),
        applied: Sequence[AppliedRow] = (),
        keys: Sequence[KeyRow] = (),
        *,
        restore_noted: bool = False,
    ) -> None:
        self.count += 1
        late = self.fail.pop(0) if self.fail else None
        if late is not None:
            self.failed += 1
        if late is False:
            raise FULL
        self._append(events, ended, applied, keys, restore_noted=restore_noted)
        if late:
            raise FULL


def put(world: World, *asked: commands.Command) -> list[Any]:
    """Several commands in one cycle."""
    replies = [Answered() for _ in asked]
    for command, reply in zip(asked, replies, strict=True):
        world.inbox.put(Item(command, reply))  # type: ignore[arg-type]
    world.cycle()
    assert all(reply.answered for reply in replies)
    return [reply.result for reply in replies]


def submit(**rest: Any) -> commands.Submit:
    """Without a key."""
    return commands.Submit(job(**rest), ALICE, "user:alice")


def test_every_command_of_the_cycle_gets_the_error_and_nothing_is_seen_of_it(tmp_path: Path) -> None:
    world = small(tmp_path)
    disk = Failing(world)
    seq, seen = world.state.seq, dict(world.view.jobs)
    disk.fail = [False]
    answers = put(
        world,
        submit(),
        commands.CancelJob(1, "user:alice"),  # of the job that the same cycle took in
        commands.CancelJob(1, "user:alice"),  # refused, since the line above has ended it
        commands.CordonNode("p-1", "user:root"),
        commands.Query(lambda state: state.next_job),
    )
    assert answers == [FULL] * 5
    assert kinds(world, seq) == []
    assert world.view.jobs == seen
    assert world.view.nodes["p-1"].open
    assert all(wanted(world, name) == {} for name in world.agents)
    assert world.state.seq == seq
    check_world(world)

    assert put(world, submit()) == [commands.Submitted(1)], "the next cycle works, with the same id"
    world.settle()
    assert str(world.view.jobs[1].state) == "running"
    check_world(world)


def test_the_answer_stands_when_only_the_decisions_can_not_be_written(tmp_path: Path) -> None:
    world = small(tmp_path)
    disk = Failing(world)
    seq = world.state.seq
    disk.fail = [None, False]
    assert put(world, submit()) == [commands.Submitted(1)]
    assert disk.failed == 1
    assert kinds(world, seq) == ["job.submitted"]
    assert all(wanted(world, name) == {} for name in world.agents), (
        "nothing is started that is not decided on the disk"
    )
    assert str(world.view.jobs[1].state) == "waiting"
    world.cycle()
    assert kinds(world, seq) == ["job.submitted", "attempt.allocated", "attempt.committed"]
    world.settle()
    assert str(world.view.jobs[1].state) == "running"


def test_an_error_after_the_write_doubles_nothing(tmp_path: Path) -> None:
    """The store says that it failed, and it did not: the state is what the disk has, and a key finds the job."""
    world = small(tmp_path)
    disk = Failing(world)
    disk.fail = [True]
    asked = commands.Submit(job(), ALICE, "user:alice", "key", "d")
    assert put(world, asked) == [FULL]
    assert set(world.view.jobs) == {1}
    assert put(world, asked) == [commands.Submitted(1, repeated=True)]
    world.settle()
    assert str(world.view.jobs[1].state) == "running"
    check_world(world)


@pytest.mark.parametrize("late", [False, True])
def test_an_agent_s_events_are_not_acknowledged_and_come_again(tmp_path: Path, late: bool) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=2))
    agent = world.agents["p-1"]
    agent.finish(AttemptId(job_id, 1), 3)
    told = list(agent.events)
    disk = Failing(world)
    disk.fail = [late]
    assert world.ask("p-1") is None
    assert agent.events == told
    seq = world.state.seq
    world.settle()
    assert agent.events == []
    assert ending_of(world, job_id) == ("failed", 3, "rank 0 on p-1 failed first, with 3")
    assert (kinds(world, seq).count("attempt.rank_failed"), disk.failed) == (0 if late else 1, 1)
    check_world(world)


def test_every_append_of_a_life_may_fail(tmp_path: Path) -> None:
    """One after the other: at each place where something is written, on both sides of the write."""
    world = small(tmp_path / "count")
    disk = Failing(world)
    _life(world)
    places = disk.count
    assert places >= 8
    for late in (False, True):
        for at in range(places):
            world = small(tmp_path / f"{late}-{at}")
            disk = Failing(world)
            disk.fail = [None] * at + [late]
            _life(world)
            assert disk.failed == 1
            assert ending_of(world, 1) == ("succeeded", 0, ""), (late, at)
            assert [len(agent.starts) for agent in world.agents.values()] == [1, 1, 0], (late, at)
            types = kinds(world)
            assert (
                types.count("job.submitted")
                == types.count("attempt.allocated")
                == types.count("job.ended")
                == 1
            )
            check_world(world)
            world.kill_controller()


def _life(world: World) -> None:
    """A gang from its submit to its end; whoever gets an error asks again."""
    asked = commands.Submit(job(nodes=2), ALICE, "user:alice", "key", "d")
    while not isinstance(world.do(asked), commands.Submitted):
        pass
    world.settle(7)
    for agent in world.agents.values():
        for attempt in list(agent.running):
            agent.finish(attempt)
    world.settle(5)


def test_time_that_could_not_be_recorded_is_recorded_later(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(time_limit_s=10))
    disk = Failing(world)
    disk.fail = [False]
    world.wait(10)
    assert str(world.view.jobs[job_id].state) == "running"
    world.cycle()
    assert str(world.view.jobs[job_id].state) == "ending"


def test_inventories_that_were_not_recorded_were_not_heard(tmp_path: Path) -> None:
    """Else `recover` would go on without what the node runs."""
    world = small(tmp_path, nodes=1)
    world.core._desk.state.recovering = True
    agent = world.agents["p-1"]
    agent.tell_inventory = True
    plant(world, "p-1", AttemptId(50, 1))
    disk = Failing(world)
    disk.fail = [False]
    assert world.ask("p-1") is None
    assert world.core._desk.told == {}


def test_a_snapshot_that_can_not_be_written_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = small(tmp_path, snapshot_every=5)
    real, tries = world.store.save_snapshot, 0

    def save(snapshot: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise FULL
        real(snapshot)

    monkeypatch.setattr(world.store, "save_snapshot", save)
    for _ in range(6):
        put(world, submit(hold=True))
    assert tries == 1
    for _ in range(6):
        put(world, submit(hold=True))
    assert tries >= 2
    snapshot = world.store.load_snapshot()
    assert snapshot is not None
    assert snapshot.seq > 5


# --- handlers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_unforeseen_error_is_told_to_its_command_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    world = small(tmp_path)
    real = intake.hold

    def broken(desk: Any, command: commands.HoldJob) -> None:
        if when == "after":
            real(desk, command)
        raise ZeroDivisionError("a bug")

    first = world.submit(job(hold=True))
    world.do(commands.ReleaseJob(first, "user:alice"))
    for name in world.agents:
        world.do(commands.CordonNode(name, "user:root"))
    second = world.submit(job())
    monkeypatch.setitem(intake.HANDLERS, commands.HoldJob, broken)
    seq = world.state.seq
    bad = commands.HoldJob(second, "user:alice")
    answers = put(world, submit(), bad, submit(), bad, commands.Query(lambda state: state.next_job))
    assert answers[0::2] == [commands.Submitted(second + 1), commands.Submitted(second + 2), second + 3]
    assert {(type(answer), answer.code) for answer in answers[1::2]} == {
        (GanglineError, "controller.internal")
    }
    assert "a bug" in answers[1].message
    assert kinds(world, seq) == ["job.submitted"] * 2, "half a command became facts"
    assert str(world.view.jobs[second].state) == "waiting"
    check_world(world)
    assert isinstance(put(world, submit())[0], commands.Submitted), "the loop goes on"


def test_one_cycle_does_not_read_the_ledger_for_each_of_many_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a client with one such command would hold the core for as long as it likes."""
    world = small(tmp_path)
    held = world.submit(job(hold=True))
    loads: list[int] = []
    writer = world.core._desk.writer
    real = writer.reload

    def broken(desk: Any, command: commands.HoldJob) -> None:
        raise ZeroDivisionError("a bug")

    def counted() -> None:
        loads.append(1)
        real()

    monkeypatch.setattr(writer, "reload", counted)
    monkeypatch.setitem(intake.HANDLERS, commands.HoldJob, broken)
    bad = commands.HoldJob(held, "user:alice")
    answers = put(world, submit(), *[bad] * 20, submit())
    told = [getattr(answer, "code", "") for answer in answers]
    assert len(loads) == MOST_AGAIN
    assert told == ["controller.again", *["controller.internal"] * 4, *["controller.again"] * 17]
    assert put(world, submit()) == [commands.Submitted(held + 1)], "nothing of it became a fact"
    check_world(world)


def test_a_question_that_fails_spoils_nothing(tmp_path: Path) -> None:
    world = small(tmp_path)

    def look(state: Any) -> Any:
        raise KeyError("x")

    answers = put(world, commands.Query(look), submit())
    assert isinstance(answers[0], Unavailable)
    assert answers[0].code == "controller.query"
    assert answers[1] == commands.Submitted(1)


def test_the_older_controller_stops_and_writes_nothing(tmp_path: Path) -> None:
    world = small(tmp_path)
    old = (world.core, world.inbox, world.store)
    world.start_controller()
    seq = world.store.last()[0]
    reply = Answered()
    old[1].put(Item(submit(), reply))  # type: ignore[arg-type]
    old[0]._wait_s = 0
    with pytest.raises(Fenced):
        old[0]._cycle()
    assert world.store.last()[0] == seq
    assert not isinstance(reply.result, commands.Submitted)
    old[2].close()


def test_an_agent_that_knows_a_newer_controller_makes_this_one_ask_the_ledger(tmp_path: Path) -> None:
    world = small(tmp_path)
    older = world.core
    world.start_controller()
    older.doubt()
    older._wait_s = 0
    with pytest.raises(Fenced):
        older._cycle()


def test_an_idle_controller_asks_from_time_to_time_whose_the_ledger_is(tmp_path: Path) -> None:
    world = small(tmp_path)
    older = world.core
    world.start_controller()
    older._wait_s = 0
    world.clock.advance(3)
    with pytest.raises(Fenced):
        older._cycle()


def test_an_agent_that_lies_about_epochs_stops_nobody(tmp_path: Path) -> None:
    world = small(tmp_path)
    world.core.doubt()
    world.cycle()
    assert world.submit(job()) == 1


def test_a_wall_clock_that_steps_back_neither_stops_the_ledger_nor_turns_it_around(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job())
    world.clock.set_wall(world.clock.now_us() - 3600 * SECOND)
    finish(world, job_id)
    other = running(world, job())
    world.kill_controller()
    world.start_controller()
    finish(world, other)
    times = [event.t_us for event in ledger(world)]
    assert times == sorted(times)


def test_what_a_start_had_to_read_counts_towards_the_next_snapshot(tmp_path: Path) -> None:
    world = small(tmp_path)
    finish(world, running(world, job()))
    read = world.state.seq
    for _ in range(3):  # killed again and again
        world.kill_controller()
        world.start_controller()
        assert world.core._desk.writer.since_snapshot > read


# --- under everything at once -----------------------------------------------------------------------------------


class FailingMachine(Machine):
    """The machine of the promises, with a disk that fails now and then."""

    refusals = ("never.", "ledger.disk-full")

    def _disk(self) -> Failing:
        """The store's; a restarted controller has opened a new one."""
        found: Failing | None = getattr(self.world, "disk", None)
        if found is None or found.store is not self.world.store:
            found = Failing(self.world)
            self.world.disk = found  # type: ignore[attr-defined]
        return found

    @rule(late=st.booleans(), skip=st.integers(0, 2))
    def disk_fails(self, late: bool, skip: int) -> None:
        self._disk().fail = [None] * skip + [late]

    @invariant()
    def promises(self) -> None:
        """After a cycle that the disk lets through."""
        if not hasattr(self, "world"):
            return
        disk = self._disk()
        coming, disk.fail = disk.fail, []
        self.world.cycle()
        super().promises()
        assert self.world.state.seq == self.world.store.last()[0], "the state is not what the disk has"
        disk.fail = coming

    def heal(self) -> None:
        self._disk().fail = []
        super().heal()


FailingMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40)
TestFailingMachine = pytest.mark.property(FailingMachine.TestCase)
