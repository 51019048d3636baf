"""Why a job waits, in every state: one reason, with its place, who is ahead and who is in the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.controller import commands
from orchestrator.controller.explain import Blocker, explain
from orchestrator.controller.reporter import Told
from orchestrator.controller.settings import Settings
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.attempt import JobState
from orchestrator.model.errors import NotFound
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import LaunchKind, Owner, PerNode, Request
from tests.builders import ALICE, BOB, cluster, job, pool, queue
from tests.controller.scenes import LEASE_S, finish, running, small, why, world_of
from tests.controller.test_disk import put
from tests.controller.world import World


def reason(world: World, job_id: int) -> tuple[str, str]:
    found = why(world, job_id).reason
    assert found is not None
    assert found.action()
    return found.code, found.sentence()


def test_place_and_those_ahead_count_within_the_queue(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=4), queues=(queue("default"), queue("other"))))
    running(world, job(gpus=4))
    first = world.submit(job(gpus=2))
    world.submit(job(gpus=4, queue="other"))
    second = world.submit(job(gpus=3), owner=BOB)
    urgent = world.submit(job(gpus=1, priority=5))
    assert [(why(world, number).place, why(world, number).waiting) for number in (urgent, first, second)] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]
    assert [why(world, number).ahead_milli for number in (urgent, first, second)] == [0, 1000, 3000]


def test_blockers_hold_what_it_could_have_those_that_end_first_first(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=4)
    endless = running(world, job(gpus=1, time_limit_s=9000), owner=BOB)
    soon = running(world, job(gpus=2, time_limit_s=50))
    number = world.submit(job(nodes=1, gpus=4))
    found = why(world, number)
    assert found.reason is not None
    assert found.reason.sentence() == (
        "it needs 1 node(s) with 4 free GPU(s) each; 0 of 1 open node(s) in pool p have them "
        "(1 GPU(s) free in all, 3 taken)"
    )
    deadlines = [world.view.jobs[each].attempt.deadline_us for each in (soon, endless)]  # type: ignore[union-attr]
    assert found.blockers == (
        Blocker(soon, "alice", 2, deadlines[0], str(soon)),
        Blocker(endless, "bob", 1, deadlines[1], str(endless)),
    )


def test_a_running_job_has_no_reason_and_an_ended_one_is_not_found(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job())
    found = why(world, job_id)
    assert (found.state, found.reason, found.place, found.blockers) == (JobState.RUNNING, None, 0, ())
    finish(world, job_id)
    with pytest.raises(NotFound, match=f"job {job_id} is not waiting or running"):
        explain(world.state, Told(), job_id)


def test_held_names_the_way_out(tmp_path: Path) -> None:
    world = small(tmp_path)
    number = world.submit(job(hold=True))
    found = why(world, number).reason
    assert found is not None
    assert (found.code, found.sentence()) == ("wait.held", "it is held: submitted with hold")
    assert found.action() == f"`gangline release {number}` lets it wait again"


def test_a_failed_preparation_is_the_reason_of_the_hold(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    number = world.submit(job())
    for agent in world.agents.values():
        agent.refuse[number] = "no such directory: /x"
    world.settle()
    assert reason(world, number) == (
        "wait.held",
        "it is held: could not be prepared on p-1, p-2: no such directory: /x",
    )


def test_starting_counts_the_ready_nodes(tmp_path: Path) -> None:
    world = small(tmp_path)
    number = world.submit(job(nodes=3))
    assert reason(world, number)[1] == "nodes are allocated and being prepared: 0 of 3 ready"
    world.beat("p-1")
    world.beat("p-1")
    assert reason(world, number)[1] == "nodes are allocated and being prepared: 1 of 3 ready"


def test_lost_names_the_silent_nodes(tmp_path: Path) -> None:
    world = small(tmp_path)
    number = running(world, job(nodes=2))
    for _ in range(2 * LEASE_S // 10):
        world.wait(10)
        world.beat("p-2", "p-3")
    assert reason(world, number) == (
        "lost.nodes",
        f"attempt {number}/1 is lost: p-1 can't be reached, and may run it or not",
    )


def test_a_silent_node_on_which_it_is_over_is_not_lost(tmp_path: Path) -> None:
    world = small(tmp_path)
    number = running(world, job(nodes=2))
    world.agents["p-1"].finish(AttemptId(number, 1))
    world.settle(2)
    for _ in range(2 * LEASE_S // 10):
        world.wait(10)
        world.beat("p-2", "p-3")
    assert str(world.view.nodes["p-1"].contact) == "unreachable"
    view = world.view.jobs[number]
    assert view.attempt is not None
    assert (view.attempt.lost, why(world, number).reason) == (False, None)


def test_stuck_names_the_node_and_what_it_said(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    number = running(world, job())
    world.agents["p-1"].unkillable = True
    world.do(commands.CancelJob(number, "user:alice"))
    world.settle(2)
    assert reason(world, number) == ("end.stuck", "its processes on p-1 can't be ended: process 1 is frozen")


def test_behind_a_gang_the_order_is_the_reason(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2, gpus=4)
    running(world, job(gpus=3))
    wide = world.submit(job(nodes=2, gpus=4))
    small_one = world.submit(job(gpus=1))
    assert reason(world, wide)[0] == "wait.gpus"
    assert reason(world, small_one) == (
        "wait.order",
        f"job {wide}, before it in order, waits for nodes of the same pool p",
    )


def test_closed_nodes_are_counted_with_their_reason(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    world.do(commands.CordonNode("p-1", "user:root"))
    world.do(commands.CordonNode("p-2", "user:root"))
    number = world.submit(job())
    assert reason(world, number) == (
        "wait.nodes-closed",
        "it would fit, but 2 of 2 node(s) in pool p may not be given work: 2 cordoned",
    )


def test_a_limit_is_named_with_its_scope_and_numbers(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(), queues=(queue("default", max_gpus_per_user=4),)))
    running(world, job(gpus=3))
    number = world.submit(job(gpus=2), owner=ALICE)
    assert reason(world, number) == (
        "wait.limit",
        "alice in queue default may have 4 GPU(s) and has 3: this job would pass that by 1",
    )


def test_no_port_left(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(), ports=(20000, 20001)))
    for _ in range(2):
        running(world, job(nodes=2))
    number = world.submit(job(nodes=2))
    assert reason(world, number) == ("wait.ports", "no rendezvous port is free on 127.0.0.1 in 20000-20001")


def test_what_a_pass_did_not_reach_is_reached_by_the_next(tmp_path: Path) -> None:
    """The work budget bounds one pass, not the cluster."""
    world = World(tmp_path / "state", cluster(pool(nodes=2, gpus=8)), Settings(work_budget=2))
    world.beat()
    numbers = [world.submit(job(gpus=1, priority=at)) for at in range(6)]
    for _ in range(6):
        world.cycle()
    assert {str(world.view.jobs[number].state) for number in numbers} == {"starting"}


def test_a_pass_that_gets_nowhere_is_not_made_again_at_once(tmp_path: Path) -> None:
    world = World(tmp_path / "state", cluster(pool(nodes=1, gpus=1)), Settings(work_budget=1))
    world.beat()
    running(world, job())
    world.submit(job(), owner=ALICE)
    last = world.submit(job(), owner=BOB)
    world.cycle()
    assert world.core._wait_s > 0, "the loop would spin"
    assert reason(world, last)[0] == "wait.tasks"


def test_a_pass_that_ran_out_of_budget_goes_on_without_being_asked(tmp_path: Path) -> None:
    world = World(tmp_path / "state", cluster(pool(nodes=1, gpus=4)), Settings(work_budget=2))
    world.beat()
    owners = [Owner(name, 2000 + at, 2000 + at) for at, name in enumerate(("ann", "ben", "cem", "dee"))]
    put(world, *(commands.Submit(job(), owner, f"user:{owner.name}") for owner in owners))
    assert sum(each.attempts for each in world.view.jobs.values()) == 2
    assert world.core._wait_s == 0, "it would sleep while there is work to hand out"
    world.cycle()
    assert [each.attempts for each in world.view.jobs.values()] == [1, 1, 1, 1]


def test_jobs_of_one_shape_and_two_launch_kinds_are_told_their_own_numbers(tmp_path: Path) -> None:
    """A launcher is one process a node whatever its tasks, so that without GPUs it asks for fewer cores."""
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=4, cores=16)))
    running(world, job(nodes=1, cores=16))
    request = Request(nodes=1, per_node=PerNode(), tasks_per_node=6)
    ranks = world.submit(replace(job(), request=request))
    launcher = world.submit(replace(job(launch=LaunchKind.LAUNCHER), request=request))
    assert reason(world, ranks)[1].startswith("it needs 1 node(s) with 6 free core(s) each")
    assert reason(world, launcher)[1].startswith("it needs 1 node(s) with 1 free core(s) each")


def test_shares_count_and_tasks_are_called_by_array_and_index(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    first = running(world, job(gpus=2, array=Array(read_tasks("5-6"))))
    half = Request(tasks=3, per_task=PerNode(gpu_milli=500))
    world.submit(replace(job(), request=half, launch=LaunchKind.RANKS))
    last = world.submit(job(gpus=1))
    found = why(world, last)
    assert [one.label for one in found.blockers] == [f"{first}_5"]
    assert found.ahead_milli == 2000 + 1500


def test_a_task_before_it_is_called_by_array_and_index(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2, gpus=2)
    running(world, job(nodes=1, gpus=1))
    first = world.submit(job(nodes=2, gpus=2, array=Array(read_tasks("5-6"))))
    behind = world.submit(job(gpus=1))
    assert reason(world, behind) == (
        "wait.order",
        f"job {first}_5, before it in order, waits for nodes of the same pool p",
    )
