"""A gang's nodes have the same software, also while a change goes through the pool node by node."""

from __future__ import annotations

from orchestrator.ledger import events
from orchestrator.model.host import Desired, Item, ItemKind, PoolDesired, RoleState
from orchestrator.model.job import JobSpec, Topology
from tests.builders import cluster, job, pool
from tests.controller.invariants import check_state
from tests.scheduler.fuzz import cold
from tests.scheduler.scenes import STARTS, Stage
from tests.scheduler.test_segments import units


def having(driver: str, content: str = "") -> PoolDesired:
    """What hosts have: a driver of that version, a package of any version, and a file."""
    items = (
        Item(ItemKind.PACKAGE, "nvidia-open", (("version", driver),)),
        Item(ItemKind.PACKAGE, "chrony", (("version", ""),)),
        Item(ItemKind.FILE, "/etc/motd", (("content", content),)),
    )
    return PoolDesired("p", f"{driver}{content}", Desired((RoleState("base", items),)))


OLD, NEW, WORDS = having("550"), having("580"), having("550", "hello")


def changing(stage: Stage, *changed: int, to: PoolDesired = NEW) -> Stage:
    """All nodes have the old software but for those with these numbers."""
    names = list(stage.state.nodes)
    for wanted, changes in ((OLD, names), (to, [names[at - 1] for at in changed])):
        assert stage.state.cluster is not None
        stage(events.ClusterApplied(stage.state.cluster, wanted.digest, desired=(wanted,)), "cluster")
        for name in changes:
            stage(events.NodeConfigured(name, wanted.digest))
    return stage


def places(stage: Stage, spec: JobSpec) -> list[str]:
    """The nodes that it gets; its reason if it gets none."""
    mine = stage.submit(spec)
    found = stage.look()
    check_state(stage.state)
    return [part.node for part in found[mine].placements] if mine in found else [stage.why(mine).sentence()]


def test_a_gang_does_not_start_across_two_versions() -> None:
    stage = changing(Stage(cluster(pool(nodes=4, gpus=4))), 2, 4)
    assert places(stage, job(nodes=2, gpus=4)) == ["p-1", "p-3"]
    assert places(stage, job(nodes=2, gpus=4)) == ["p-2", "p-4"]


def test_who_needs_more_than_one_version_has_waits_for_the_change_and_says_so() -> None:
    stage = changing(Stage(cluster(pool(nodes=4, gpus=4))), 1)
    (why,) = places(stage, job(nodes=4, gpus=4))
    assert why == (
        "its nodes must have the same software, and those of pool p differ at present: nodes that are alike take 3 of "
        "its 4 nodes now, all together 4"
    )
    for name in ("p-2", "p-3", "p-4"):
        stage(events.NodeConfigured(name, NEW.digest))
    assert len(stage.look()) == 1


def test_tasks_of_one_gang_are_alike_and_single_ones_go_anywhere() -> None:
    stage = changing(Stage(cluster(pool(nodes=2, gpus=4))), 1)
    assert places(stage, job(tasks=6, gpus=1))[0].startswith("its nodes must have the same software")
    assert [places(stage, job(gpus=4))[0] for _ in range(2)] == ["p-1", "p-2"]


def test_what_is_no_package_with_a_version_sets_no_nodes_apart() -> None:
    stage = changing(Stage(cluster(pool(nodes=4, gpus=4))), 2, to=WORDS)
    assert places(stage, job(nodes=4, gpus=4)) == ["p-1", "p-2", "p-3", "p-4"]


def test_it_goes_with_the_level_that_the_gang_requires_and_with_segments() -> None:
    stage = changing(Stage(units(3, 3, 2)), 2, 4)
    assert places(stage, job(nodes=2, gpus=4, topology=Topology("unit"))) == ["p-1", "p-3"]
    both = job(nodes=4, gpus=4, topology=Topology(segment_nodes=2, segment_level="unit"))
    assert places(stage, both) == ["p-5", "p-6", "p-7", "p-8"]


def test_nodes_are_kept_that_are_alike() -> None:
    """Its nodes are p-1 and p-3; p-2, which is free and has other software, is anybody's."""
    stage = changing(Stage(cluster(pool(nodes=3, gpus=4))), 2)
    first = stage.submit(job(nodes=1, gpus=4, time_limit_s=600))
    stage.look()
    mine = stage.submit(job(nodes=2, gpus=4))
    small = [stage.submit(job(nodes=1, gpus=4)) for _ in range(2)]
    stage.look()
    assert [stage.outcome(one) for one in (mine, *small)] == ["wait.gpus", STARTS, "wait.order"]
    stage.end(first)
    stage.look()
    assert stage.outcome(mine) == STARTS


def test_it_is_the_same_after_the_state_was_read_back() -> None:
    stage = changing(Stage(cluster(pool(nodes=4, gpus=4))), 2, 4)
    stage.state = cold(stage.state)
    assert places(stage, job(nodes=2, gpus=4)) == ["p-1", "p-3"]
