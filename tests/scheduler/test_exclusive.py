"""Nodes that are nobody else's: they start on empty ones alone, nobody comes after, and they count in full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.controller.publish import launches
from orchestrator.ledger import events
from orchestrator.model.attempt import Placement
from orchestrator.model.cluster import Queue, Share
from orchestrator.model.job import JobSpec
from orchestrator.model.node import Device, NodeFacts
from orchestrator.scheduler import refuse
from tests.builders import BOB, GPU, cluster, job, pool, queue
from tests.controller.invariants import check_state
from tests.scheduler.fuzz import cold
from tests.scheduler.scenes import STARTS, Stage, share

ONE = job(gpus=1)
CPU = job(gpus=0, cores=1)


def alone(spec: JobSpec) -> JobSpec:
    return replace(spec, request=replace(spec.request, exclusive=True))


def tells(stage: Stage, cores: int, gpus: int) -> None:
    """Its only node tells that it has these, and people agree."""
    devices = tuple(Device(slot, GPU, emulated=True) for slot in range(gpus))
    stage(events.NodeJoined("p-1", NodeFacts("boot-1", cores, 64 << 30, devices), "outbox-p-1"))
    for mark in list(stage.state.nodes["p-1"].marks):
        stage(events.NodeUnmarked("p-1", mark.kind))


@pytest.mark.parametrize("first", [ONE, CPU, share(milli=100), alone(ONE)])
@pytest.mark.parametrize("then", [ONE, CPU, share(milli=100)])
def test_it_shares_its_node_with_nobody_whoever_comes_first(first: JobSpec, then: JobSpec) -> None:
    stage = Stage(cluster(pool(nodes=1, gpus=4)))
    held = stage.submit(first)
    stage.look()
    mine = stage.submit(alone(then))
    stage.look()
    assert stage.outcome(mine) == "wait.alone"
    assert "0 of 1 open node(s) in pool p are empty" in stage.why(mine).sentence()
    stage.end(held)
    stage.look()
    assert stage.outcome(mine) == STARTS
    behind = stage.submit(first)
    stage.look()
    assert stage.outcome(behind) != STARTS
    check_state(stage.state)


def test_it_holds_the_whole_node_and_may_use_what_it_asked_for() -> None:
    stage = Stage(cluster(pool(nodes=1, gpus=4, cores=64)))
    mine = stage.submit(alone(job(gpus=1, cores=6, memory=1 << 30)))
    (start,) = stage.look().values()
    (part,) = start.placements
    assert (part.slots, part.cores, part.memory) == ((0, 1, 2, 3), 64, 64 << 30)
    attempt = stage.state.jobs[mine].attempt
    assert attempt is not None
    (launch,) = launches(stage.state, stage.state.jobs[mine], attempt)
    assert (launch.slots, launch.cores, launch.memory) == ((0,), 6, 1 << 30)


def test_it_counts_for_the_whole_node_in_limits() -> None:
    """As whoever asks Slurm for --exclusive is charged for all of the node."""
    stage = Stage(cluster(pool(nodes=3, gpus=4), queues=(queue(max_gpus_per_user=8),)))
    jobs = [stage.submit(alone(ONE)) for _ in range(3)]
    stage.look()
    assert [stage.outcome(one) for one in jobs] == [STARTS, STARTS, "wait.limit"]
    assert "8" in stage.why(jobs[2]).sentence()


def test_what_would_pass_a_limit_with_whole_nodes_alone_is_refused_at_submit() -> None:
    stage = Stage(cluster(pool(nodes=3, gpus=4), queues=(queue(max_gpus_per_user=8),)))
    assert refuse.never(stage.state, alone(job(nodes=2, gpus=1)), "alice") is None
    found = refuse.never(stage.state, alone(job(nodes=3, gpus=1)), "alice")
    assert found is not None
    assert (found.code, found.fact("need")) == ("never.limit", 12)


def test_a_guarantee_covers_it_if_it_covers_the_whole_node() -> None:
    """Of two queues the one goes first whose guarantee holds a whole node; one GPU of a guarantee is too little."""
    queues = (Queue("a", guarantee=(Share(1, "p"),)), Queue("b", guarantee=(Share(4, "p"),)))
    stage = Stage(cluster(pool(nodes=1, gpus=4), queues=queues))
    first = stage.submit(alone(job(gpus=1, queue="a")))
    second = stage.submit(alone(job(gpus=1, queue="b")), BOB)
    stage.look()
    assert (stage.outcome(first), stage.outcome(second)) == ("wait.alone", STARTS)


def test_of_empty_nodes_it_takes_the_one_that_leaves_the_fewest_gpus_idle() -> None:
    stage = Stage(cluster(pool("big", 1, 8), pool("little", 1, 2)))
    stage.submit(alone(ONE))
    (start,) = stage.look().values()
    assert start.placements[0].node == "little-1"


def test_a_gang_of_tasks_fills_the_nodes_that_are_its_own() -> None:
    stage = Stage(cluster(pool(nodes=3, gpus=4)))
    stage.submit(alone(job(tasks=6, gpus=1)))
    (start,) = stage.look().values()
    assert [(part.node, part.tasks) for part in start.placements] == [("p-1", 4), ("p-2", 2)]


def test_nodes_are_kept_for_it_and_whoever_comes_later_does_not_start_there() -> None:
    """A stream of small jobs can't keep it waiting for ever."""
    stage = Stage(cluster(pool(nodes=2, gpus=2)))
    small = [stage.submit(job(gpus=1, time_limit_s=60 * (3 - at))) for at in range(3)]
    stage.look()
    mine = stage.submit(alone(job(nodes=2, gpus=1)))
    late = [stage.submit(job(gpus=1, time_limit_s=60)) for _ in range(4)]
    stage.look()
    assert stage.outcome(mine) == "wait.alone"
    assert {stage.outcome(one) for one in late} == {"wait.order"}
    for one in small:
        stage.end(one)
    stage.look()
    assert stage.outcome(mine) == STARTS


def test_nodes_may_be_kept_for_a_job_where_somebody_is_alone() -> None:
    """What is kept of such a node is nothing: nothing of it is free."""
    stage = Stage(cluster(pool(nodes=1, gpus=2)))
    mine = stage.submit(alone(ONE))
    stage.look()
    behind = stage.submit(job(gpus=2))
    stage.look()
    assert stage.outcome(behind) == "wait.tasks"
    stage.end(mine)
    stage.look()
    assert stage.outcome(behind) == STARTS


def test_a_device_or_cores_that_turn_up_meanwhile_are_nobodys() -> None:
    stage = Stage(cluster(pool(nodes=1, gpus=2, cores=0)))
    tells(stage, cores=8, gpus=2)
    mine = stage.submit(alone(ONE))
    stage.look()
    assert stage.outcome(mine) == STARTS
    tells(stage, cores=96, gpus=3)
    behind = [stage.submit(one) for one in (ONE, CPU)]
    stage.look()
    assert STARTS not in [stage.outcome(one) for one in behind]
    check_state(stage.state)
    stage.end(mine)
    again = cold(stage.state).capacity.at("p-1")
    assert stage.state.capacity.at("p-1") == again
    assert (again.free, again.free_cores) == (0b111, 96)
    stage.look()
    assert {stage.outcome(one) for one in behind} == {STARTS}


def test_a_copy_of_what_is_held_has_who_is_alone_where() -> None:
    """Passes that start many jobs give all of it back by a copy, and take gangs in one step."""
    capacity = Stage(cluster(pool(nodes=2, gpus=4))).state.capacity
    saved, before = capacity.save(), [capacity.at(name) for name in capacity.names]
    mine = capacity.all_of(Placement("p-1", (0,), 1, 2, 3))
    capacity.take(mine)
    capacity.restore(saved)
    assert [capacity.at(name) for name in capacity.names] == before
    assert capacity.is_empty("p-1")
    capacity.take_all((Placement("p-1", (0,), 1), Placement("p-2", (0,), 1)))
    with pytest.raises(ValueError, match="wants it alone"):
        capacity.take(mine)
