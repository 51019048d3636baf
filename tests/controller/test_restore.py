"""An old backup put back while the cluster works: nothing is killed or started twice, everything is found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.controller import commands
from orchestrator.controller.settings import Settings
from orchestrator.model.attempt import JobState
from orchestrator.model.errors import Conflict, Unavailable
from orchestrator.model.ids import AttemptId
from orchestrator.store.base import HistoryQuery
from orchestrator.store.restore import restore
from tests.builders import cluster, job, pool
from tests.controller.invariants import check_world
from tests.controller.test_disk import Failing
from tests.controller.world import World

NODES = 16


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state", cluster(pool(nodes=NODES)), Settings(lease_s=60))


def put_back(world: World, backup: Path) -> None:
    """Stop the controller, restore, start another one."""
    world.kill_controller()
    restore(backup, world.path, world.clock.now_us())
    world.start_controller()
    world.cycle()


def history(world: World) -> dict[int, str]:
    reader = world.store.reader()
    try:
        return {row.job: row.state for row in reader.page(HistoryQuery(limit=1000))}
    finally:
        reader.close()


def backup_with_work(world: World, tmp_path: Path) -> tuple[Path, list[int], list[int], list[int]]:
    """70 gangs running at the backup; since then 20 have ended and 10 new ones run. Returns them so."""
    world.settle()
    first = [world.submit(job(nodes=2, gpus=1) if number % 7 == 0 else job(gpus=1)) for number in range(70)]
    world.settle()
    backup = tmp_path / "old.backup"
    world.store.backup(str(backup))
    over = first[:20]
    for agent in world.agents.values():
        for attempt in [attempt for attempt in agent.running if attempt.job in over]:
            agent.finish(attempt)
    world.settle()
    new = [world.submit(job(gpus=1)) for _ in range(10)]
    world.settle()
    assert set(history(world)) == set(over)
    return backup, first[20:], over, new


def test_old_backup_under_running_jobs(world: World, tmp_path: Path) -> None:
    backup, running, over, new = backup_with_work(world, tmp_path)
    alive = {attempt for agent in world.agents.values() for attempt in agent.running}
    assert {attempt.job for attempt in alive} == {*running, *new}

    put_back(world, backup)
    world.settle()

    assert {attempt for agent in world.agents.values() for attempt in agent.running} == alive, (
        "one was killed"
    )
    assert {AttemptId(number, 1) for number in new} == {
        orphan.attempt for orphan in world.state.orphans.values()
    }
    assert set(history(world)) == set(over), "what had ended has ended again, by the nodes' own records"
    waiting = world.submit(job(gpus=1))
    assert waiting > max(new), "an id was given twice"
    reason = world.view.reason_of(world.view.jobs[waiting])
    assert reason.code == "wait.recovering"

    result = world.do(commands.Recover("user:root"))
    assert set(result.recovered) == {f"{number}/1" for number in new}
    assert result.left == ()
    world.settle()
    check_world(world)
    assert world.view.jobs[waiting].state is JobState.RUNNING
    assert set(world.view.jobs) == {*running, *new, waiting}

    for agent in world.agents.values():
        for attempt in list(agent.running):
            agent.finish(attempt)
    world.settle()
    assert not world.state.jobs
    assert set(history(world)) == {*running, *over, *new, waiting}
    assert set(history(world).values()) == {"succeeded"}


def test_jobs_that_ran_and_ended_since_are_recovered_as_ended(world: World, tmp_path: Path) -> None:
    world.settle()
    waiting = world.submit(job(gpus=1, hold=True))
    backup = tmp_path / "old.backup"
    world.store.backup(str(backup))
    world.do(commands.ReleaseJob(waiting, "user:alice"))
    unknown = world.submit(job(nodes=2, gpus=2))
    world.settle()
    for agent in world.agents.values():
        for attempt in list(agent.running):
            agent.finish(attempt, 3 if attempt.job == unknown else 0)
    world.settle()
    starts = sum(len(agent.starts) for agent in world.agents.values())

    put_back(world, backup)
    world.settle()
    assert world.do(commands.ReleaseJob(waiting, "user:alice")) is None
    world.do(commands.Recover("user:root"))
    world.settle()

    assert sum(len(agent.starts) for agent in world.agents.values()) == starts, "one started twice"
    assert history(world) == {waiting: "succeeded", unknown: "failed"}


def test_recover_waits_for_silent_nodes_unless_told(world: World, tmp_path: Path) -> None:
    backup, *_ = backup_with_work(world, tmp_path)
    put_back(world, backup)
    world.beat(*[name for name in world.agents if name != "p-3"])
    world.beat(*[name for name in world.agents if name != "p-3"])
    error = world.do(commands.Recover("user:root"))
    assert isinstance(error, Conflict)
    assert "p-3" in error.message
    result = world.do(commands.Recover("user:root", without=("p-3",)))
    assert result.without == ("p-3",)
    world.settle()
    check_world(world)
    late = [orphan.attempt for orphan in world.state.orphans.values()]
    assert all(attempt in world.agents["p-3"].running for attempt in late), "the late node's work was ended"


def test_recover_without_a_restore_names_no_node_as_left_out(world: World) -> None:
    world.settle()

    assert world.do(commands.Recover("user:root")) == commands.RecoverResult((), (), ())


def test_restart_while_recovering_goes_on_recovering(world: World, tmp_path: Path) -> None:
    backup, _, _, new = backup_with_work(world, tmp_path)
    put_back(world, backup)
    world.settle()
    world.kill_controller()
    world.start_controller()
    world.cycle()
    assert world.state.recovering
    world.settle()
    result = world.do(commands.Recover("user:root"))
    assert set(result.recovered) == {f"{number}/1" for number in new}


def test_what_nodes_told_before_the_disk_was_full_they_tell_again(world: World, tmp_path: Path) -> None:
    """The controller forgets with its State who has told what; a beat like the last one is then news to it."""
    backup, running, _, _ = backup_with_work(world, tmp_path)
    put_back(world, backup)
    world.settle()
    disk = Failing(world)
    disk.fail = [False]
    assert isinstance(world.do(commands.CordonNode("p-1", "user:root", "")), Unavailable)
    assert isinstance(world.do(commands.Recover("user:root")), Conflict), "nobody has told yet"
    world.settle()
    assert isinstance(world.do(commands.Recover("user:root")), commands.RecoverResult)
    assert set(running) <= set(world.state.jobs)


def test_a_lost_question_for_the_inventory_is_asked_again(world: World, tmp_path: Path) -> None:
    backup, _, _, _ = backup_with_work(world, tmp_path)
    put_back(world, backup)
    for _ in range(3):
        answer = world.ask("p-1")  # and lost on its way
        assert answer is not None
        assert answer.want_inventory
    world.settle()
    assert "p-1" in world.core._desk.told


def test_a_backup_from_between_allocation_and_commit(world: World, tmp_path: Path) -> None:
    """It runs, so it was committed: by the ledger that the restored one is an older copy of."""
    world.settle()
    gang = world.submit(job(nodes=3, gpus=1))
    assert world.state.jobs[gang].attempt is not None
    backup = tmp_path / "early.backup"
    world.store.backup(str(backup))
    world.settle()
    put_back(world, backup)
    for agent in world.agents.values():
        agent.events = []  # acknowledged by the ledger that is gone
    world.settle()
    attempt = world.view.jobs[gang].attempt
    assert attempt is not None
    assert str(attempt.state) == "running"
    assert {agent.starts.count(AttemptId(gang, 1)) for agent in world.agents.values()} == {0, 1}
    world.do(commands.Recover("user:root"))
    for agent in world.agents.values():
        if AttemptId(gang, 1) in agent.running:
            agent.finish(AttemptId(gang, 1))
    world.settle()
    assert history(world)[gang] == "succeeded"
    check_world(world)
