"""What is renewed: nodes of an older file, few at a time, and never for nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.ledger import events
from orchestrator.model.attempt import JobState
from orchestrator.model.capacity import NEVER_US, Circuit, ErrorClass, Halt
from orchestrator.model.cluster import Update
from orchestrator.model.decisions import Cordon, Release
from tests.autoscale.scene import SECOND, Scene, elastic, hybrid, kinds
from tests.builders import job


def old_nodes(count: int = 3, **rest: Any) -> tuple[Scene, list[str]]:
    """Nodes that a file before the present one has bought for a gang, which still runs on them."""
    scene = Scene(hybrid(elastic(**rest)))
    scene.submit(job(nodes=count, gpus=8))
    nodes = scene.bought()
    scene.look()
    scene.policy = replace(scene.policy, outdated=frozenset(scene.state.fleets))
    return scene, nodes


def test_old_nodes_are_closed_few_at_a_time_and_go_when_their_work_is_over() -> None:
    scene, nodes = old_nodes(update=Update(max_unavailable=2))
    (first, second) = scene.look()
    assert isinstance(first, Cordon)
    assert first.deadline_us == scene.now_us + Update().drain.deadline_s * SECOND
    scene.carry_out((first, second))
    assert kinds(scene) == [], "the gang runs on"
    scene.end(1)
    assert kinds(scene) == ["Release", "Release"]
    scene.carry_out()
    assert kinds(scene) == [], "the third one's turn comes when they are gone"
    scene.gone(*nodes[:2])
    assert kinds(scene) == ["Cordon"]
    scene.carry_out()
    assert kinds(scene) == ["Release"]


def test_nobody_counts_on_an_old_node_that_was_closed() -> None:
    scene, _ = old_nodes(1)
    scene.carry_out()
    scene.end(1)
    scene.submit(job(nodes=1, gpus=8))
    assert kinds(scene) == ["Buy", "Release"]


def test_a_gang_that_an_old_node_has_room_for_starts_there_first() -> None:
    """It would wait for a boot otherwise; the node is closed as soon as the gang has begun."""
    scene, _ = old_nodes(1)
    scene.end(1)
    late = scene.submit(job(nodes=1, gpus=8))
    assert kinds(scene) == ["Cordon"]
    assert scene.state.jobs[late].attempt is not None


def test_a_floor_is_renewed_one_after_the_other() -> None:
    scene, _ = old_nodes(2, least=2)
    scene.end(1)
    old = dict(scene.state.fleets)
    closed: list[int] = []
    for _ in range(40):
        scene.carry_out()
        closed.append(sum(not node.open for node in scene.state.nodes.values()))
        scene.join(*scene.launch())
        scene.gone(*[node.name for node in scene.state.nodes.values() if node.releasing])
    assert max(closed) == 1
    assert not set(old) & set(scene.state.fleets)
    assert [node.open for node in scene.state.nodes.values()] == [True, True]


@pytest.mark.parametrize("trouble", ["no capacity", "does not boot"])
@pytest.mark.parametrize("wanted_for", ["a floor", "a gang", "a gang that was cancelled"])
def test_no_old_node_is_closed_while_new_ones_can_not_be_had(trouble: str, wanted_for: str) -> None:
    """Of one offering, so that nothing is under way meanwhile; two idle old nodes are better than none."""
    scene, _ = old_nodes(2, least=3 if wanted_for == "a floor" else 0)
    scene.offers = scene.offers[:1]
    scene.end(1)
    waits = scene.submit(job(nodes=3, gpus=8)) if wanted_for != "a floor" else 0
    (intent,) = scene.carry_out()
    if trouble == "no capacity":
        scene.refuse(intent, ErrorClass.CAPACITY)
    else:
        (node,) = scene.launch(intent)
        scene.wait(1500)
        scene.carry_out(tuple(one for one in scene.look() if isinstance(one, Release) and one.failed))
        scene.gone(node)
    if wanted_for == "a gang that was cancelled":
        scene(events.JobEnded(waits, JobState.CANCELLED))
    for _ in range(5):
        assert [one for one in scene.look() if "older file" in getattr(one, "why", "")] == []
        scene.wait(1)


def test_no_old_node_is_closed_while_another_one_comes() -> None:
    """From the decision until it is proved; then one is closed, also under its work."""
    scene, _ = old_nodes(2)
    scene.submit(job(nodes=1, gpus=8))
    (intent,) = scene.carry_out()
    assert kinds(scene) == [], "it was asked for"
    (node,) = scene.launch(intent)
    assert kinds(scene) == [], "it boots"
    scene.join(node)
    assert kinds(scene) == ["Cordon"]


def test_an_idle_old_node_is_closed_before_a_busy_one() -> None:
    scene = Scene()
    busy, idle = (scene.submit(job(nodes=1, gpus=8)) for _ in range(2))
    scene.bought()
    scene.bought()
    scene.look()
    (node,) = [part.placement.node for part in scene.state.jobs[idle].attempt.parts]  # type: ignore[union-attr]
    scene.wait(10)
    scene.end(idle)
    scene.policy = replace(scene.policy, outdated=frozenset(scene.state.fleets))
    (first,) = scene.look()
    assert isinstance(first, Cordon)
    assert first.node == node
    assert scene.state.jobs[busy].attempt is not None


def test_an_old_node_that_a_waiting_gang_counts_on_is_not_closed() -> None:
    scene, _ = old_nodes(1, update=Update(max_unavailable=3))
    scene.end(1)
    scene.submit(job(nodes=2, gpus=8))
    assert kinds(scene) == ["Buy"]


@pytest.mark.parametrize("trouble", ["nothing on offer", "offerings rest", "site rests"])
def test_no_old_node_is_closed_while_nothing_is_sold(trouble: str) -> None:
    """No job waits that would be told of it; each node that goes would be lost to the next one."""
    scene, _ = old_nodes(2)
    if trouble == "nothing on offer":
        scene.offers = ()
    for each in scene.offers if trouble == "offerings rest" else ():
        scene.state.circuits[each.key] = Circuit(each.key, retry_us=NEVER_US)
    if trouble == "site rests":
        scene.state.halts["use1"] = Halt("use1", ErrorClass.AUTH, "no", scene.now_us + 60 * SECOND)
    assert kinds(scene) == []


def test_closed_nodes_stay_closed_while_nobody_knows_what_the_file_wants() -> None:
    """Else each failed look at the stack's facts gave the node new work, and its drain another deadline."""
    scene, nodes = old_nodes(1)
    scene.carry_out()
    mark = scene.state.nodes[nodes[0]].marks[0]
    known = scene.policy
    scene.policy = replace(known, outdated=frozenset(), blocked=(("use1", "its facts can't be read"),))
    assert kinds(scene) == []
    scene.policy = known
    assert kinds(scene) == []
    assert scene.state.nodes[nodes[0]].marks == [mark]


def test_a_file_that_changes_back_opens_the_nodes_again() -> None:
    scene, nodes = old_nodes(1)
    scene.carry_out()
    assert not scene.state.nodes[nodes[0]].open
    scene.policy = replace(scene.policy, outdated=frozenset())
    assert kinds(scene) == ["Uncordon"]
    scene.carry_out()
    assert scene.state.nodes[nodes[0]].open
