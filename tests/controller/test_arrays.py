"""Arrays: one submit, many jobs, a throttle that holds up nobody else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.controller.explain import explain
from orchestrator.controller.recover import _array_of
from orchestrator.ledger.snapshot import to_plain
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.attempt import JobState
from orchestrator.model.errors import Conflict, NotFound, Refused, Unavailable
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec
from orchestrator.model.protocol import Launch
from tests.builders import ALICE, BOB, cluster, job, pool, queue
from tests.controller.invariants import check_reasons, check_state
from tests.controller.scenes import finish, kinds, ledger, over, running, small, why, world_of
from tests.controller.world import World

BY = "user:alice"


def array(text: str, at_most: int = 0, **rest: Any) -> JobSpec:
    return replace(job(**rest), array=Array(read_tasks(text), at_most))


def live(world: World, first: int) -> dict[str, str]:
    """State by label, of the tasks that have not ended."""
    return {each.label: str(each.state) for each in world.state.jobs.values() if each.array == first}


def with_attempts(world: World, first: int) -> list[int]:
    """Indices of the tasks that have an attempt."""
    return [each.index for each in world.state.jobs.values() if each.array == first and each.attempt]


# --- one submit -----------------------------------------------------------------------------------------------------


def test_one_event_makes_all_tasks_with_ids_in_a_row(tmp_path: Path) -> None:
    world = small(tmp_path)
    before = world.state.seq
    made = world.do(commands.Submit(array("3-7:2"), ALICE, BY))
    after = world.submit(job())
    assert (made, after) == (commands.Submitted(1, tasks=3), 4)
    assert kinds(world, before).count("job.submitted") == 2
    assert {view.label: (view.id, view.array, view.index) for view in world.view.jobs.values()} == {
        "1_3": (1, 1, 3),
        "1_5": (2, 1, 5),
        "1_7": (3, 1, 7),
        "4": (4, 0, 0),
    }
    specs = [world.state.jobs[each].spec for each in (1, 2, 3)]
    assert all(spec is specs[0] for spec in specs)


def test_a_repeated_submit_makes_no_second_array(tmp_path: Path) -> None:
    world = small(tmp_path)
    submit = commands.Submit(array("0-4"), ALICE, BY, "k", "d")
    assert world.do(submit) == commands.Submitted(1, tasks=5)
    assert world.do(submit) == commands.Submitted(1, repeated=True, tasks=5)
    assert world.state.next_job == 6


def test_tasks_know_their_array_and_index(tmp_path: Path) -> None:
    world = small(tmp_path)
    world.submit(array("5,9"))
    world.settle()
    known = {
        held.launch.array_index: held.launch.array
        for agent in world.agents.values()
        for held in agent.journal.values()
        if held.launch is not None
    }
    assert known == {5: 1, 9: 1}


def test_ended_tasks_are_kept_with_their_index_and_the_array_goes_with_the_last(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("5,9", at_most=2))
    world.settle()
    finish(world, first + 1, 3)
    view = over(world, first + 1)
    assert (view.label, view.exit_code, view.at_most) == ("1_9", 3, 2)
    assert list(world.state.arrays) == [first]
    finish(world, first)
    assert world.state.arrays == {}
    assert not [name for name in world.state.limits.scopes if "array" in name]


def test_a_held_array_starts_when_its_tasks_are_released(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("0-2", hold=True))
    world.settle()
    assert set(live(world, first).values()) == {"held"}
    world.do(commands.Together(tuple(commands.ReleaseJob(first + task, BY) for task in range(3))))
    world.settle()
    assert set(live(world, first).values()) == {"running"}


# --- the throttle ---------------------------------------------------------------------------------------------------


def test_no_more_tasks_than_that_at_a_time_and_no_fewer(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("0-5", at_most=2))
    order: list[int] = []
    while live(world, first):
        world.settle()
        check_state(world.state)
        now = with_attempts(world, first)
        assert len(now) == min(2, len(live(world, first)))
        order.append(now[0])
        finish(world, first + now[0])
    assert order == [0, 1, 2, 3, 4, 5]


def test_the_first_of_four_tasks_one_at_a_time_and_why_the_others_wait(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("1-4", at_most=1))
    world.settle()
    assert live(world, first) == {"1_1": "running", "1_2": "waiting", "1_3": "waiting", "1_4": "waiting"}
    found = why(world, first + 1).reason
    assert found is not None
    assert (found.code, found.sentence()) == (
        "wait.limit",
        "array 1 may have 1 task(s) at a time and has 1: this job would pass that by 1",
    )
    check_reasons(world)


def test_a_throttled_array_holds_up_nobody(tmp_path: Path) -> None:
    """Not the same person's job of the very same shape, not another array of it, not another person's job."""
    world = small(tmp_path, nodes=2, gpus=4)
    first = world.submit(array("0-9", at_most=1, priority=1))
    world.settle()
    same, other = world.submit(job()), world.submit(array("0-9", at_most=2))
    bobs = world.submit(job(), owner=BOB)
    world.settle()
    assert with_attempts(world, first) == [0]
    assert with_attempts(world, other) == [0, 1]
    assert {world.state.jobs[each].state for each in (same, bobs)} == {JobState.RUNNING}


def test_the_person_s_own_limit_holds_for_arrays_too(tmp_path: Path) -> None:
    spec = cluster(pool(gpus=8, cores=16), queues=(queue("default", max_jobs_per_user=3),))
    world = world_of(tmp_path, spec)
    first, second = world.submit(array("0-9", at_most=2)), world.submit(array("0-9", at_most=2))
    world.settle()
    assert [len(with_attempts(world, each)) for each in (first, second)] == [2, 1]
    found = why(world, second + 1).reason
    assert found is not None
    assert found.sentence().startswith("alice in queue default may have 3 running job(s) and has 3")


def test_the_throttle_can_be_changed_while_it_runs(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("0-9", at_most=1))
    world.settle()
    assert world.do(commands.ThrottleArray(first, 3, BY)) is None
    world.settle()
    assert with_attempts(world, first) == [0, 1, 2]
    world.do(commands.ThrottleArray(first, 1, BY))
    finish(world, first)
    assert with_attempts(world, first) == [1, 2]  # those that have an attempt keep it
    seq = world.state.seq
    world.do(commands.ThrottleArray(first, 1, BY))
    assert kinds(world, seq) == []
    world.kill_controller()
    world.start_controller()
    assert world.state.arrays[first].at_most == 1
    world.do(commands.ThrottleArray(first, 0, BY))
    world.settle()
    assert with_attempts(world, first) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    view = world.job(first + 5)
    assert view is not None
    assert view.at_most == 0


def test_only_arrays_that_are_left_have_a_throttle(tmp_path: Path) -> None:
    world = small(tmp_path)
    alone = running(world, job())
    assert isinstance(world.do(commands.ThrottleArray(alone, 1, BY)), NotFound)
    gone = world.submit(array("0"))
    world.settle()
    finish(world, gone)
    assert isinstance(world.do(commands.ThrottleArray(gone, 1, BY)), Conflict)


# --- how many -------------------------------------------------------------------------------------------------------


def test_each_task_counts_against_what_the_queue_lets_wait(tmp_path: Path) -> None:
    spec = cluster(pool(nodes=1, gpus=1), queues=(queue("default", max_waiting_jobs=10),))
    world = world_of(tmp_path, spec)
    world.submit(array("0-7", hold=False))
    refused = world.do(commands.Submit(array("0-4"), ALICE, BY))
    assert isinstance(refused, Unavailable)
    assert refused.message == "queue default has 7 waiting job(s), and allows 10; the array has 5 tasks"
    never = world.do(commands.Submit(array("0-10"), ALICE, BY))
    assert isinstance(never, Refused)
    assert never.message == "the array has 11 tasks, and queue default lets 10 job(s) wait"
    assert world.do(commands.Submit(array("0-2"), ALICE, BY)) == commands.Submitted(9, tasks=3)


def test_a_snapshot_keeps_what_tasks_share_once(tmp_path: Path) -> None:
    world = small(tmp_path)
    world.submit(array("0-99", at_most=3, name="a" * 60))
    world.settle()
    plain = to_plain(world.state)
    assert not [each for each in plain["jobs"] if "spec" in each or "owner" in each]
    world.core._snapshot()
    world.kill_controller()
    world.start_controller()
    check_state(world.state)
    specs = [each.spec for each in world.state.jobs.values()]
    assert len(specs) == 100
    assert all(spec is specs[0] for spec in specs)
    assert world.state.arrays[1].spec is specs[0]


# --- explained, done together ---------------------------------------------------------------------------------------


def test_a_whole_array_is_explained_by_its_next_task(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("1-4", at_most=1))
    world.settle()
    whole = explain(world.state, world.view.reasons, first, whole=True)
    assert (whole.label, whole.state) == ("1_2", JobState.WAITING)
    one = explain(world.state, world.view.reasons, first)
    assert (one.label, one.state, one.reason) == ("1_1", JobState.RUNNING, None)


def test_what_is_done_together_is_one_commit_and_each_has_its_answer(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("0-3", at_most=1))
    world.settle()
    seq = world.state.seq
    answers = world.do(commands.Together(tuple(commands.HoldJob(first + task, BY) for task in range(4))))
    assert [type(each) for each in answers] == [Conflict, type(None), type(None), type(None)]
    assert len({event.batch for event in ledger(world, seq)}) == 1


# --- after a restore ------------------------------------------------------------------------------------------------


def test_tasks_of_a_forgotten_array_that_nodes_run_are_taken_back_as_such(tmp_path: Path) -> None:
    world = small(tmp_path / "a")
    first = world.submit(array("4-6", at_most=2))
    world.settle()
    other = small(tmp_path / "b")
    other.agents = world.agents
    for agent in other.agents.values():
        agent.tell_inventory, agent.epoch, agent.seen = True, 0, ""
    other.beat()
    other.beat()
    assert other.do(commands.Recover(BY)).recovered == ("1/1", "2/1")
    assert live(other, first) == {"1_4": "running", "1_5": "running"}
    assert (other.state.arrays[first].live, other.state.arrays[first].at_most) == (2, 2)
    check_state(other.state)


@pytest.mark.parametrize(
    ("job_id", "spec", "index", "of"),
    [
        (3, array("4-6"), 6, 1),
        (3, array("4-6"), 5, 0),  # the index of another task
        (3, array("4-7"), 6, 0),  # another array than the one that is known
        (3, job(), 6, 0),  # no array
        (2, array("4-6"), 5, 1),
    ],
)
def test_a_node_s_word_on_an_array_counts_only_where_it_fits(
    tmp_path: Path, job_id: int, spec: JobSpec, index: int, of: int
) -> None:
    world = small(tmp_path)
    world.submit(array("4-6"))
    launch = Launch(spec, ALICE, (), 0, array=1, array_index=index)
    assert _array_of(world.core._desk, AttemptId(job_id, 1), launch) == of
