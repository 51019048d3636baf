"""Whose fault a failed preparation is: the node's until the job fails on another one too."""

from __future__ import annotations

from pathlib import Path

from orchestrator.controller import commands
from orchestrator.model.ids import AttemptId
from orchestrator.model.node import MarkKind
from tests.builders import cluster, job, pool
from tests.controller.invariants import check_world
from tests.controller.scenes import finish, kinds, mark_of, marks, over, running, small, world_of
from tests.controller.world import World

NO_DIR = "no such directory: /data/run7"


def refuse(world: World, job_id: int, *nodes: str, error: str = NO_DIR) -> None:
    """These nodes (or all) can't prepare the job."""
    for name in nodes or tuple(world.agents):
        world.agents[name].refuse[job_id] = error


def test_a_job_that_fails_on_two_nodes_is_held_and_no_node_keeps_a_mark(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=4)
    job_id = world.submit(job())
    refuse(world, job_id)
    world.settle()
    view = world.view.jobs[job_id]
    assert (str(view.state), view.hold_code) == ("held", "prepare-failed")
    assert view.hold == f"could not be prepared on p-1, p-2: {NO_DIR}"
    assert view.faults == (f"p-1: {NO_DIR}", f"p-2: {NO_DIR}")
    assert view.attempts == 2, "no third node was bothered"
    assert marks(world) == {}
    assert [agent.starts for agent in world.agents.values()] == [[]] * 4
    assert all(node.open and not node.holders for node in world.state.nodes.values())
    assert world.state.jobs[job_id].failures == {}, "nobody's failure"
    assert [str(past.cause) for past in view.past] == ["prepare_failed", "prepare_failed"]
    assert [past.started_us for past in view.past] == [0, 0], "not started: uncharged"
    check_world(world)


def test_a_job_that_starts_elsewhere_leaves_the_mark_on_the_bad_node(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=4)
    job_id = world.submit(job())
    refuse(world, job_id, "p-1")
    world.settle()
    assert str(world.view.jobs[job_id].state) == "running"
    assert marks(world) == {"p-1": ["prepare_failed"]}
    assert mark_of(world, "p-1", MarkKind.PREPARE_FAILED) == f"job {job_id}: {NO_DIR}"
    other = running(world, job())
    assert world.state.nodes["p-1"].holders == {}, "a marked node gets no work"
    finish(world, job_id)
    finish(world, other)
    assert marks(world) == {"p-1": ["prepare_failed"]}
    world.do(commands.UncordonNode("p-1", "user:root"))
    assert marks(world) == {}


def test_on_the_only_node_it_is_the_job_s_fault_at_once(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = world.submit(job())
    refuse(world, job_id)
    world.settle()
    view = world.view.jobs[job_id]
    assert (str(view.state), view.hold) == ("held", f"could not be prepared on p-1: {NO_DIR}")
    assert marks(world) == {}
    other = running(world, job())
    assert other in world.state.jobs


def test_a_gang_that_fails_on_both_nodes_at_once_is_held(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=3)
    job_id = world.submit(job(nodes=2))
    refuse(world, job_id)
    world.settle()
    view = world.view.jobs[job_id]
    assert (str(view.state), view.attempts) == ("held", 1)
    assert view.hold == f"could not be prepared on p-1, p-2: {NO_DIR}"
    assert marks(world) == {}


def test_the_ready_half_of_a_gang_is_told_to_end(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=3)
    job_id = world.submit(job(nodes=2))
    refuse(world, job_id, "p-2")
    world.settle(8)
    view = world.view.jobs[job_id]
    assert (str(view.state), view.attempts) == ("running", 2)
    assert world.agents["p-1"].starts == [AttemptId(job_id, 2)]
    assert world.agents["p-1"].journal[AttemptId(job_id, 1)].ended is not None
    assert view.past[0].detail == f"p-2: {NO_DIR}"
    assert marks(world) == {"p-2": ["prepare_failed"]}
    assert "attempt.committed" not in kinds(world)[: kinds(world).index("attempt.ended")]


def test_each_job_has_its_own_mark_and_takes_back_only_that(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=4)
    bad_node, bad_job = world.submit(job()), world.submit(job())
    refuse(world, bad_node, "p-1")
    refuse(world, bad_job)
    world.settle()
    assert str(world.view.jobs[bad_node].state) == "running"
    assert str(world.view.jobs[bad_job].state) == "held"
    assert marks(world) == {"p-1": ["prepare_failed"]}
    assert mark_of(world, "p-1", MarkKind.PREPARE_FAILED).startswith(f"job {bad_node}:")


def test_after_release_it_is_tried_anew(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=3)
    job_id = world.submit(job())
    refuse(world, job_id)
    world.settle()
    for agent in world.agents.values():
        agent.refuse = {}
    world.do(commands.ReleaseJob(job_id, "user:alice"))
    assert world.view.jobs[job_id].faults == ()
    world.settle()
    assert str(world.view.jobs[job_id].state) == "running"
    assert marks(world) == {}


def test_a_hold_between_two_failures_leaves_no_mark_behind(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=4)
    job_id = world.submit(job())
    refuse(world, job_id)
    world.beat("p-1")  # it fails there
    world.beat("p-1")  # and says so: marked, and allocated elsewhere
    assert marks(world) == {"p-1": ["prepare_failed"]}
    for name in ("p-2", "p-3", "p-4"):
        world.do(commands.CordonNode(name, "user:root"))
    world.do(commands.RequeueJob(job_id, "user:alice"))
    world.settle(2)
    world.do(commands.HoldJob(job_id, "user:alice"))
    world.do(commands.ReleaseJob(job_id, "user:alice"))
    for name in ("p-2", "p-3", "p-4"):
        world.do(commands.UncordonNode(name, "user:root"))
    world.settle()
    assert str(world.view.jobs[job_id].state) == "held"
    assert marks(world) == {}, "the job is at fault, and p-1 keeps a mark from it"


def test_cancel_of_a_job_that_can_not_be_prepared(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=3)
    job_id = world.submit(job(nodes=2))
    refuse(world, job_id, "p-1")
    world.agents["p-2"].unkillable = True
    world.beat()
    world.do(commands.CancelJob(job_id, "user:alice"))
    world.settle()
    assert str(over(world, job_id).state) == "cancelled"
    assert marks(world) == {}


def test_a_job_that_is_cancelled_before_it_is_clear_whose_fault_it_was_closes_no_node(tmp_path: Path) -> None:
    """One job's word alone: if the node is at fault, the next job says so again."""
    world = small(tmp_path, nodes=3, gpus=4)
    running(world, job(nodes=2, gpus=4))
    job_id = world.submit(job())
    refuse(world, job_id)
    world.settle()
    assert marks(world) == {"p-3": ["prepare_failed"]}, "it waits for one of the busy nodes"
    world.do(commands.CancelJob(job_id, "user:alice"))
    assert str(over(world, job_id).state) == "cancelled"
    assert marks(world) == {}
    world.settle()
    running(world, job())


def test_only_nodes_of_the_job_s_own_pools_count_as_elsewhere(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool("a", nodes=1), pool("b", nodes=3, model="L40S-48GB")))
    job_id = world.submit(job(models=("H100-SXM5-80GB",)))
    refuse(world, job_id)
    world.settle()
    assert str(world.view.jobs[job_id].state) == "held"
    assert marks(world) == {}


def test_a_gang_that_needs_the_bad_node_is_held_rather_than_left_waiting_for_it(tmp_path: Path) -> None:
    """Two nodes are open that it has not tried, and they are one too few."""
    world = small(tmp_path, nodes=3)
    job_id = world.submit(job(nodes=3))
    refuse(world, job_id, "p-1")
    world.settle()
    view = world.view.jobs[job_id]
    assert (str(view.state), view.hold) == ("held", f"could not be prepared on p-1: {NO_DIR}")
    assert marks(world) == {}


def test_another_pool_that_suits_is_elsewhere(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool("a", nodes=1), pool("b", nodes=1)))
    job_id = world.submit(job())
    refuse(world, job_id, "a-1")
    world.settle()
    assert str(world.view.jobs[job_id].state) == "running"
    assert marks(world) == {"a-1": ["prepare_failed"]}


def test_a_closed_node_is_nowhere_else_to_try(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    world.do(commands.CordonNode("p-2", "user:root"))
    job_id = world.submit(job())
    refuse(world, job_id)
    world.settle()
    assert str(world.view.jobs[job_id].state) == "held"
    assert marks(world) == {"p-2": ["cordoned"]}
