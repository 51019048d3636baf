"""Another priority for jobs that wait: their place, their start, what stays after a restart."""

from __future__ import annotations

from pathlib import Path

from orchestrator.controller import commands
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.attempt import JobState
from orchestrator.model.errors import Conflict, NotFound
from tests.builders import BOB, job
from tests.controller.scenes import finish, kinds, running, small, why
from tests.controller.world import World

BY = "user:alice"


def prioritize(world: World, job_id: int, priority: int) -> object:
    answer = world.do(commands.PrioritizeJob(job_id, priority, BY))
    world.settle()
    return answer


def places(world: World, *jobs: int) -> list[int]:
    return [why(world, each).place for each in jobs]


def test_a_waiting_job_moves_to_its_place_and_starts_in_its_turn(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    before = running(world, job(gpus=2))
    first, second, third = (world.submit(job(gpus=2), owner=BOB) for _ in range(3))
    assert places(world, first, second, third) == [1, 2, 3]
    assert prioritize(world, third, 5) is None
    assert places(world, first, second, third) == [2, 3, 1]
    prioritize(world, first, -1)
    assert places(world, first, second, third) == [3, 2, 1]
    finish(world, before)
    assert [world.state.jobs[each].state for each in (first, second, third)] == [
        JobState.WAITING,
        JobState.WAITING,
        JobState.RUNNING,
    ]
    finish(world, third)
    assert world.state.jobs[second].state is JobState.RUNNING


def test_it_stays_after_a_restart_and_after_an_attempt(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    before = running(world, job(gpus=2))
    first, second = world.submit(job(gpus=2)), world.submit(job(gpus=2))
    prioritize(world, second, 5)
    world.kill_controller()
    world.start_controller()
    world.settle()
    assert places(world, first, second) == [2, 1]
    finish(world, before)
    world.do(commands.RequeueJob(second, BY))
    world.settle()
    assert world.state.jobs[second].attempts == 2  # it was first again
    view = world.job(second)
    assert view is not None
    assert (view.priority, view.spec.priority) == (5, 0)


def test_a_held_job_takes_it_along(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    running(world, job(gpus=2))
    first, second = world.submit(job(gpus=2)), world.submit(job(gpus=2, hold=True))
    assert prioritize(world, second, 5) is None
    world.do(commands.ReleaseJob(second, BY))
    assert places(world, first, second) == [2, 1]


def test_a_job_that_waits_for_others_takes_it_along(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    before = running(world, job(gpus=2))
    first = world.submit(job(gpus=2, singleton=True))
    second = world.submit(job(gpus=2, singleton=True))
    prioritize(world, second, 5)
    assert places(world, first, second) == [0, 0]
    for each in (before, first):
        finish(world, each)
    assert world.state.jobs[second].state is JobState.RUNNING


def test_one_task_of_an_array_goes_before_the_others(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=1)
    first = world.submit(job(gpus=1, array=Array(read_tasks("0-3"), at_most=1)))
    world.settle()
    prioritize(world, first + 3, 1)
    finish(world, first)
    states = [world.state.jobs[first + at].state for at in (1, 2, 3)]
    assert states == [JobState.WAITING, JobState.WAITING, JobState.RUNNING]
    finish(world, first + 3)
    assert world.state.jobs[first + 1].state is JobState.RUNNING


def test_what_has_started_or_ended_can_get_none(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    number = running(world, job(gpus=2, priority=3))
    refused = prioritize(world, number, 4)
    assert isinstance(refused, Conflict)
    assert (refused.code, refused.message) == (
        "job.has-attempt",
        f"job {number} is running: priority decides about starts",
    )
    finish(world, number)
    assert isinstance(prioritize(world, number, 4), Conflict)
    assert isinstance(prioritize(world, 99, 4), NotFound)


def test_asked_for_again_it_is_done_already(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    number = world.submit(job(gpus=2, priority=3))
    seq = world.state.seq
    assert world.do(commands.PrioritizeJob(number, 3, BY)) is None
    assert "job.prioritized" not in kinds(world, seq)
    world.settle()
    assert world.state.jobs[number].state is JobState.RUNNING
    assert prioritize(world, number, 3) is None  # also by a person whose answer was lost
