"""What is given back: idle nodes in two passes, never what is needed, booked or somebody's own."""

from __future__ import annotations

from typing import Any

from orchestrator.ledger import events
from orchestrator.model.capacity import ErrorClass
from orchestrator.model.decisions import Cordon, Uncordon
from orchestrator.model.node import Mark, MarkKind
from tests.autoscale.scene import Scene, elastic, hybrid, kinds, offer
from tests.builders import job


def idle(least: int = 0, **rest: Any) -> tuple[Scene, list[str]]:
    """A pool of three nodes that have just become idle."""
    scene = Scene(hybrid(elastic(least=least, **rest)))
    scene.submit(job(nodes=3, gpus=8))
    nodes = scene.bought()
    scene.look()
    scene.end(1)
    return scene, nodes


def test_idle_nodes_go_in_two_passes() -> None:
    scene, nodes = idle()
    scene.wait(599)
    assert kinds(scene) == []
    scene.wait(1)
    assert kinds(scene) == ["Cordon"] * 3
    scene.carry_out()
    assert kinds(scene) == ["Release"] * 3
    assert all(not scene.state.nodes[name].open for name in nodes)


def test_work_that_comes_between_the_passes_keeps_its_node() -> None:
    scene, _ = idle()
    scene.wait(600)
    scene.carry_out()
    late = scene.submit(job(nodes=1, gpus=8))
    decisions = scene.look()
    assert sorted(type(one).__name__ for one in decisions) == ["Release", "Release", "Uncordon"]
    scene.carry_out(decisions)
    scene.look()
    assert scene.state.jobs[late].attempt is not None


def test_a_floor_wins_over_idleness() -> None:
    scene, _ = idle(least=2)
    scene.wait(10**6)
    scene.carry_out()
    scene.carry_out()
    assert [node.releasing for node in scene.state.nodes.values()].count(False) == 2
    assert kinds(scene) == []


def test_the_dearest_of_idle_nodes_goes_first() -> None:
    """Though it has been idle for a shorter time."""
    scene = Scene(hybrid(elastic(least=1)), (offer("spot", dollars=20), offer(dollars=50)))
    first = scene.submit(job(nodes=1, gpus=8))
    scene.bought()
    scene.look()
    second = scene.submit(job(nodes=1, gpus=8))
    (intent,) = scene.carry_out()
    scene.refuse(intent, ErrorClass.CAPACITY, 3600)
    (dear,) = scene.bought()
    scene.look()
    for each in (first, second):
        scene.end(each)
        scene.wait(100)
    scene.wait(1000)
    (cordon,) = scene.look()
    assert isinstance(cordon, Cordon)
    assert cordon.node == dear


def test_the_pools_own_idle_time_counts() -> None:
    scene, _ = idle(idle_s=7200)
    scene.wait(7199)
    assert kinds(scene) == []
    scene.wait(1)
    assert kinds(scene) == ["Cordon"] * 3


def test_what_people_have_cordoned_is_not_given_back() -> None:
    scene, nodes = idle()
    scene(events.NodeMarked(nodes[1], Mark(MarkKind.CORDONED, "debugging", "user:alice", scene.now_us)))
    scene.wait(600)
    cordons = scene.look()
    assert [one.node for one in cordons if isinstance(one, Cordon)] == [nodes[0], nodes[2]]


def test_what_an_apply_has_closed_is_given_back_once_nobody_needs_it() -> None:
    """As when the cluster ends: the apply waits for that, and would for ever."""
    scene, nodes = idle()
    for name in nodes:
        scene(
            events.NodeMarked(name, Mark(MarkKind.UPDATING, "the cluster ends", "user:alice", scene.now_us))
        )
    assert kinds(scene) == []
    scene.wait(600)
    assert kinds(scene) == ["Release"] * 3


def test_a_smaller_size_lets_only_idle_nodes_go() -> None:
    scene, nodes = idle()
    scene.submit(job(nodes=1, gpus=8))
    scene.look()
    (busy,) = [node.name for node in scene.state.nodes.values() if node.holders]
    scene(events.ClusterApplied(hybrid(elastic(most=1)), "smaller"), "cluster")
    gone = {one.node for one in scene.look() if isinstance(one, Cordon)}
    assert gone == set(nodes) - {busy}


def test_a_smaller_size_lets_no_more_go_than_are_too_many() -> None:
    """None of the three has been idle for long: one goes."""
    scene, _ = idle()
    scene(events.ClusterApplied(hybrid(elastic(most=2)), "smaller"), "cluster")
    assert kinds(scene) == ["Cordon"]


def test_a_pool_that_left_the_file_is_given_back_when_its_work_is_over() -> None:
    scene, nodes = idle()
    scene.submit(job(nodes=1, gpus=8))
    scene.look()
    (busy,) = [node.name for node in scene.state.nodes.values() if node.holders]
    scene(events.ClusterApplied(hybrid(elastic("other")), "without"), "cluster")
    released = scene.look()
    scene.carry_out(released)
    assert {name for name in nodes if scene.state.nodes[name].releasing} == set(nodes) - {busy}
    scene.end(2)
    assert kinds(scene) == ["Release"]


def test_nodes_that_boot_for_a_job_that_is_gone_go_too() -> None:
    scene = Scene()
    scene.submit(job(nodes=2, gpus=8))
    scene.bought(ready=False)
    scene(events.JobCancelRequested(1))
    scene(events.JobEnded(1, "cancelled"))  # type: ignore[arg-type] # a Word is its text
    scene.wait(600)
    assert kinds(scene) == ["Release"] * 2


def test_uncordon_is_only_for_what_an_earlier_pass_has_cordoned() -> None:
    scene, _ = idle()
    scene.submit(job(nodes=3, gpus=8))
    assert not [one for one in scene.look() if isinstance(one, Uncordon)]


def test_a_name_is_free_when_its_instance_is_gone() -> None:
    scene = Scene()
    scene.submit(job(nodes=1, gpus=8))
    (first,) = scene.bought()
    scene.look()
    scene.end(1)
    scene.wait(600)
    scene.carry_out()
    scene.carry_out()
    scene.submit(job(nodes=1, gpus=8))
    assert scene.state.nodes[first].releasing
    (intent,) = scene.carry_out()
    assert scene.state.fleets[intent].intent.nodes == ("burst-2",)
    scene.gone(first)
    scene.submit(job(nodes=1, gpus=8, cores=1))
    scene.launch(intent)
    (other,) = scene.carry_out()
    assert scene.state.fleets[other].intent.nodes == ("burst-1",)
