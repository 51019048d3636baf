"""Jobs that wait for other jobs: what lets them start, what ends them, and what a restart keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands, intake, waiting_for
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.attempt import JobState
from orchestrator.model.dependency import Dependency, On
from orchestrator.model.errors import NotFound
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.reasons import Reason
from tests.builders import ALICE, BOB, cluster, job, pool, queue
from tests.controller.invariants import check_state
from tests.controller.scenes import ending_of, finish, kinds, on, over, running, small, why, world_of
from tests.controller.world import World

BY = "user:alice"


def after(job_id: int, on: On = On.OK, index: int | None = None, **rest: Any) -> JobSpec:
    """A job that depends on another one."""
    return replace(job(**rest), depends_on=(Dependency(job_id, on, index),))


def array(text: str, **rest: Any) -> JobSpec:
    return replace(job(**rest), array=Array(read_tasks(text)))


def states(world: World, *ids: int) -> list[str]:
    """The states of jobs, live or ended."""
    return [
        str(world.state.jobs[each].state if each in world.state.jobs else over(world, each).state)
        for each in ids
    ]


def reason_of(world: World, job_id: int) -> Reason:
    found = why(world, job_id).reason
    assert found is not None
    return found


def succeed(world: World, job_id: int) -> None:
    finish(world, job_id)


def fail(world: World, job_id: int) -> None:
    finish(world, job_id, 3)


def cancel_running(world: World, job_id: int) -> None:
    world.do(commands.CancelJob(job_id, BY))
    world.settle(3)


# --- one job after another ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "follow"),
    [
        (succeed, {On.START: "running", On.OK: "running", On.FAILED: "cancelled", On.END: "running"}),
        (fail, {On.START: "running", On.OK: "cancelled", On.FAILED: "running", On.END: "running"}),
        (cancel_running, {On.START: "running", On.OK: "cancelled", On.FAILED: "running", On.END: "running"}),
    ],
    ids=["succeeds", "fails", "is cancelled while it runs"],
)
def test_what_follows_when_a_job(
    tmp_path: Path, ends: Callable[[World, int], None], follow: dict[On, str]
) -> None:
    world = small(tmp_path)
    first = running(world, job())
    behind = {on: world.submit(after(first, on)) for on in On}
    world.settle()
    begun = {on: states(world, each)[0] for on, each in behind.items()}
    assert begun == {On.START: "running", On.OK: "waiting", On.FAILED: "waiting", On.END: "waiting"}
    ends(world, first)
    world.settle()
    assert {on: states(world, each)[0] for on, each in behind.items()} == follow
    check_state(world.state)


def test_after_a_job_that_never_ran_nothing_comes_that_was_to_follow_its_success_or_failure(
    tmp_path: Path,
) -> None:
    world = small(tmp_path)
    first = world.submit(job(hold=True))
    behind = {on: world.submit(after(first, on)) for on in On}
    world.do(commands.CancelJob(first, BY))
    world.settle()
    assert {on: states(world, each)[0] for on, each in behind.items()} == {
        On.START: "running",
        On.OK: "cancelled",
        On.FAILED: "cancelled",
        On.END: "running",
    }
    assert ending_of(world, behind[On.FAILED]) == (
        "cancelled",
        0,
        "its dependency can't be met: it was to start if job 1 failed, and it was cancelled before it ran",
    )


def test_a_chain_ends_in_one_cycle_and_what_was_to_follow_any_end_goes_on(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = running(world, job())
    second = world.submit(after(first))
    third = world.submit(after(second))
    fourth = world.submit(after(third, On.END))
    fifth = world.submit(after(fourth))
    before = world.state.seq
    fail(world, first)
    world.settle()
    assert states(world, second, third, fourth, fifth) == ["cancelled", "cancelled", "running", "waiting"]
    assert kinds(world, before).count("job.ended") == 3
    assert "job 2 succeeded, and it was cancelled before it ran" in over(world, third).why


def test_a_job_that_waits_says_for_whom_and_how_far_those_are(tmp_path: Path) -> None:
    world = small(tmp_path)
    first, second = running(world, job()), world.submit(job(hold=True))
    spec = replace(job(), depends_on=(Dependency(first, On.END), Dependency(second)))
    waits = world.submit(spec)
    found = reason_of(world, waits)
    assert found.code == "wait.dependency"
    assert found.sentence() == "it waits for job 1 to end (it is running), job 2 to succeed (it is held)"
    view = world.job(waits)
    assert view is not None
    assert world.view.reason_of(view) == found
    assert why(world, waits).place == 0
    succeed(world, first)
    assert reason_of(world, waits).sentence() == "it waits for job 2 to succeed (it is held)"


def test_all_of_it_must_hold(tmp_path: Path) -> None:
    world = small(tmp_path)
    first, second = running(world, job()), running(world, job())
    waits = world.submit(replace(job(), depends_on=(Dependency(first), Dependency(second, On.END))))
    succeed(world, first)
    assert states(world, waits) == ["waiting"]
    fail(world, second)
    world.settle()
    assert states(world, waits) == ["running"]


def test_waiting_counts_from_when_nothing_is_waited_for_any_more(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=1)
    first = running(world, job())
    waits = world.submit(after(first, On.END))
    busy = running(world, job(gpus=0))
    world.wait(100)
    succeed(world, first)
    live = world.state.jobs.get(waits)
    assert live is not None
    assert live.waiting_us - live.submitted_us >= 100 * 1_000_000
    assert busy in world.state.jobs


def test_it_holds_up_nobody(tmp_path: Path) -> None:
    """Jobs of the same shape behind it start, and it takes no place in the queue."""
    world = small(tmp_path)
    first = running(world, job())
    waits = world.submit(after(first))
    assert running(world, job()) > waits
    assert states(world, waits) == ["waiting"]


# --- jobs that have ended before ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "on", "state"),
    [
        (succeed, On.OK, "running"),
        (succeed, On.END, "running"),
        (succeed, On.START, "running"),
        (succeed, On.FAILED, "cancelled"),
        (fail, On.OK, "cancelled"),
        (fail, On.FAILED, "running"),
        (cancel_running, On.FAILED, "running"),
    ],
)
@pytest.mark.parametrize("restart", [False, True], ids=["in one life", "after a restart"])
def test_a_job_that_ended_before_is_looked_up(
    tmp_path: Path, ends: Callable[[World, int], None], on: On, state: str, restart: bool
) -> None:
    world = small(tmp_path)
    first = running(world, job())
    ends(world, first)
    if restart:
        world.kill_controller()
        world.start_controller()
    follows = world.submit(after(first, on))
    world.settle()
    assert states(world, follows) == [state]
    if state == "cancelled":
        assert over(world, follows).why.startswith("its dependency can't be met: it was to start if job 1")


def test_what_can_never_be_met_ends_in_the_cycle_that_takes_it_in(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = running(world, job())
    fail(world, first)
    follows = world.submit(after(first))
    assert states(world, follows) == ["cancelled"]


def test_a_job_that_ended_in_the_same_batch_counts(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(job(hold=True))
    both = commands.Together((commands.CancelJob(first, BY),))
    desk = world.core._desk
    intake.handle(desk, both)
    made = intake.handle(desk, commands.Submit(after(first, On.END), ALICE, BY))
    world.settle()
    assert states(world, made.job) == ["running"]


@pytest.mark.parametrize(
    ("depends", "code", "words"),
    [
        (Dependency(99), "depends.not-found", "there is no job 99 to wait for"),
        (Dependency(99, index=1), "depends.not-found", "there is no job 99 to wait for"),
        (Dependency(2), "depends.not-found", "there is no job 2 to wait for"),  # itself
        (Dependency(1, index=0), "job.no-array", "job 1 is no array"),
    ],
)
def test_what_nobody_knows_is_refused_at_submit(
    tmp_path: Path, depends: Dependency, code: str, words: str
) -> None:
    world = small(tmp_path)
    running(world, job())
    answer = world.do(commands.Submit(replace(job(), depends_on=(depends,)), ALICE, BY))
    assert isinstance(answer, NotFound)
    assert (answer.code, answer.message) == (code, words)
    assert list(world.state.jobs) == [1]


# --- arrays ---------------------------------------------------------------------------------------------------------


def test_an_array_is_waited_for_as_a_whole_or_by_one_task(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("5-7"))
    world.settle()
    whole, one = world.submit(after(first)), world.submit(after(first, On.OK, 6))
    succeed(world, first + 1)
    assert states(world, whole, one) == ["waiting", "running"]
    succeed(world, first)
    assert "array 1 to succeed" in reason_of(world, whole).sentence()
    succeed(world, first + 2)
    world.settle()
    assert states(world, whole, one) == ["running", "running"]
    assert world.state.arrays == {}
    check_state(world.state)


def test_the_first_failure_of_an_array_ends_what_was_to_follow_its_success(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("0-2"))
    world.settle()
    on_ok, on_failed = world.submit(after(first)), world.submit(after(first, On.FAILED))
    fail(world, first + 1)
    world.settle()
    assert states(world, on_ok, on_failed) == ["cancelled", "waiting"]
    succeed(world, first)
    succeed(world, first + 2)
    world.settle()
    assert states(world, on_failed) == ["running"]


def test_an_array_that_has_ended_is_counted_in_the_history(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(array("0-2"))
    world.settle()
    for task, code in ((0, 0), (1, 3), (2, 0)):
        finish(world, first + task, code)
    world.kill_controller()
    world.start_controller()
    on_ok, on_failed = world.submit(after(first)), world.submit(after(first, On.FAILED))
    one = world.submit(after(first, On.OK, 2))
    world.settle()
    assert states(world, on_ok, on_failed, one) == ["cancelled", "running", "running"]
    answer = world.do(commands.Submit(after(first, On.OK, 3), ALICE, BY))
    assert (answer.code, answer.hint) == ("job.no-task", "its tasks are 0-2")


def test_an_array_waits_as_one(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = running(world, job())
    tasks = world.submit(replace(array("0-3"), depends_on=(Dependency(first),)))
    assert states(world, tasks, tasks + 3) == ["waiting", "waiting"]
    fail(world, first)
    world.settle()
    assert states(world, *range(tasks, tasks + 4)) == ["cancelled"] * 4


def test_the_end_of_a_large_array_is_spread_over_cycles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_for, "MOST_AT_ONCE", 10)
    world = small(tmp_path)
    first = running(world, job())
    tasks = world.submit(replace(array("0-24"), depends_on=(Dependency(first),)))
    (agent,), attempt = on(world, first), world.state.jobs[first].attempt
    assert attempt is not None
    agent.finish(attempt.id, 3)
    world.beat()
    assert len(world.state.doomed) == 15
    assert world.core._wait_s == 0.0
    world.core._snapshot()
    world.kill_controller()
    world.start_controller()
    for _ in range(3):
        world.cycle()
    assert states(world, tasks, tasks + 24) == ["cancelled", "cancelled"]
    check_state(world.state)


# --- singletons -----------------------------------------------------------------------------------------------------


def test_singletons_of_one_name_and_person_run_one_after_the_other(tmp_path: Path) -> None:
    world = small(tmp_path)
    nightly = replace(job("nightly"), singleton=True)
    first = running(world, job("nightly"))
    second, third = world.submit(nightly), world.submit(nightly)
    other, bobs = running(world, replace(job("other"), singleton=True)), running(world, nightly, owner=BOB)
    assert states(world, second, third) == ["waiting", "waiting"]
    assert reason_of(world, third).sentence() == "it waits for earlier jobs of alice named nightly to end"
    world.do(commands.CancelJob(second, BY))
    assert states(world, third) == ["waiting"]
    fail(world, first)
    world.settle()
    assert states(world, third, other, bobs) == ["running", "running", "running"]
    check_state(world.state)


def test_tasks_of_a_singleton_array_run_one_after_the_other(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = world.submit(replace(array("0-2"), singleton=True))
    world.settle()
    assert states(world, first, first + 1, first + 2) == ["running", "waiting", "waiting"]
    succeed(world, first)
    world.settle()
    assert states(world, first + 1, first + 2) == ["running", "waiting"]


# --- holds, requeues, restarts --------------------------------------------------------------------------------------


def test_a_requeued_job_is_still_waited_for(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = running(world, job())
    waits = world.submit(after(first, On.END))
    world.do(commands.RequeueJob(first, BY))
    world.settle()
    assert states(world, first, waits) == ["running", "waiting"]
    assert world.state.jobs[first].attempts == 2
    succeed(world, first)
    world.settle()
    assert states(world, waits) == ["running"]


def test_a_held_job_keeps_what_it_waits_for(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = running(world, job())
    waits = world.submit(after(first))
    world.do(commands.HoldJob(waits, BY))
    assert states(world, waits) == ["held"]
    world.do(commands.ReleaseJob(waits, BY))
    world.settle()
    assert states(world, waits) == ["waiting"]
    world.do(commands.HoldJob(waits, BY))
    succeed(world, first)
    assert (states(world, waits), world.state.jobs[waits].blocked) == (["held"], False)
    world.do(commands.ReleaseJob(waits, BY))
    world.settle()
    assert states(world, waits) == ["running"]


def test_a_held_job_is_cancelled_when_its_dependency_can_not_be_met(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = running(world, job())
    waits = world.submit(replace(after(first), hold=True))
    fail(world, first)
    assert states(world, waits) == ["cancelled"]


@pytest.mark.parametrize("snapshot", [False, True], ids=["by its events", "by a snapshot"])
def test_a_restart_keeps_what_is_waited_for(tmp_path: Path, snapshot: bool) -> None:
    world = small(tmp_path)
    first = world.submit(array("0-1"))
    world.settle()
    chain = world.submit(after(first))
    line = [world.submit(replace(job("one"), singleton=True)) for _ in range(2)]
    world.settle()
    if snapshot:
        world.core._snapshot()
    world.kill_controller()
    world.start_controller()
    check_state(world.state)
    world.settle()
    assert states(world, chain, *line) == ["waiting", "running", "waiting"]
    succeed(world, first)
    succeed(world, first + 1)
    succeed(world, line[0])
    world.settle()
    assert states(world, chain, line[1]) == ["running", "running"]


def test_jobs_that_wait_for_others_count_against_the_queue(tmp_path: Path) -> None:
    world = world_of(
        tmp_path, cluster(pool(nodes=1, gpus=1, cores=16), queues=(queue("default", max_waiting_jobs=2),))
    )
    first = running(world, job())
    world.submit(after(first))
    world.submit(after(first))
    answer = world.do(commands.Submit(after(first), Owner("carol", 1003, 1003), "user:carol"))
    assert answer.code == "submit.queue-full"
    assert "has 2 waiting job(s), and allows 2" in answer.message


def test_nobody_is_left_waiting_for_what_has_ended(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = running(world, job())
    waits = world.submit(after(first, On.END))
    world.do(commands.CancelJob(waits, BY))
    assert world.state.dependents == {}
    assert (world.state.blocked, world.state.jobs[first].state) == ({}, JobState.RUNNING)
