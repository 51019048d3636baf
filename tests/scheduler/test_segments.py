"""Gangs in segments: each within one domain of its level, neighbours in rank order, told and refused in segments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger.state import class_key
from orchestrator.model.cluster import NODE_LEVEL, ClusterSpec
from orchestrator.model.cluster_sites import FabricDomain, SiteFabric, Unit
from orchestrator.model.job import JobSpec, Topology
from orchestrator.scheduler import refuse
from tests.builders import cluster, job, pool
from tests.scheduler.scenes import STARTS, Stage


def units(*sizes: int, spines: tuple[int, ...] = ()) -> ClusterSpec:
    """One pool whose nodes stand in units of these sizes, in order; `spines` says how many units each spine has."""
    names = [f"p-{at}" for at in range(1, sum(sizes) + 1)]
    found, at = [], 0
    for number, size in enumerate(sizes):
        found.append(Unit(f"u{number}", tuple(names[at : at + size])))
        at += size
    outer, first = [], 0
    for number, size in enumerate(spines or (len(sizes),)):
        outer.append(
            FabricDomain("spine", f"s{number}", tuple(f"u{one}" for one in range(first, first + size)))
        )
        first += size
    fabric = SiteFabric(("unit", "spine"), tuple(found), tuple(outer))
    return cluster(pool(nodes=sum(sizes), gpus=4), fabric=fabric)


def segmented(nodes: int, each: int, level: str = "unit", **wish: str) -> JobSpec:
    return job(nodes=nodes, gpus=4, topology=Topology(segment_nodes=each, segment_level=level, **wish))


def places(stage: Stage, spec: JobSpec) -> list[str]:
    """The nodes that it gets, in gang order; its reason if it gets none."""
    mine = stage.submit(spec)
    found = stage.look()
    return [part.node for part in found[mine].placements] if mine in found else [stage.outcome(mine)]


@pytest.mark.parametrize(
    ("sizes", "spec", "want"),
    [
        # three of five nodes are of use to segments of three; the fourth and fifth are not
        ((5, 3), segmented(6, 3), ["p-1", "p-2", "p-3", "p-6", "p-7", "p-8"]),
        ((5, 3, 3), segmented(6, 3), ["p-1", "p-2", "p-3", "p-6", "p-7", "p-8"]),
        # a unit that holds all of it is closest; of two that do, the one with the least room
        ((5, 2, 4), segmented(4, 2), ["p-8", "p-9", "p-10", "p-11"]),
        ((1, 1, 1), segmented(3, 1), ["p-1", "p-2", "p-3"]),
        # whole units first, the smallest that will do for the rest
        ((2, 4, 5), segmented(6, 2), ["p-1", "p-2", "p-3", "p-4", "p-5", "p-6"]),
    ],
)
def test_each_segment_stays_in_one_unit(sizes: tuple[int, ...], spec: JobSpec, want: list[str]) -> None:
    assert places(Stage(units(*sizes)), spec) == want


def test_ranks_of_a_segment_are_neighbours_whatever_the_order_of_nodes() -> None:
    """Unit u0 has nodes 1 and 4, u1 has 2 and 3: ranks follow units, not the order of nodes."""
    fabric = SiteFabric(("unit",), (Unit("u0", ("p-1", "p-4")), Unit("u1", ("p-2", "p-3"))))
    stage = Stage(cluster(pool(nodes=4, gpus=4), fabric=fabric))
    assert places(stage, segmented(4, 2)) == ["p-1", "p-4", "p-2", "p-3"]


def test_segments_stay_together_within_the_level_that_the_gang_requires() -> None:
    stage = Stage(units(2, 3, 2, 2, spines=(2, 2)))
    mine = segmented(4, 2, required="spine")
    stage.submit(job(nodes=1, gpus=4))  # into the smallest unit of one node's room
    assert places(stage, mine) == ["p-6", "p-7", "p-8", "p-9"]


def test_segments_are_as_close_as_can_be_without_being_asked() -> None:
    """Both spines would do in part; one holds all segments."""
    assert places(Stage(units(2, 1, 2, 2, spines=(2, 2))), segmented(4, 2)) == ["p-4", "p-5", "p-6", "p-7"]


def test_the_closest_domain_is_named_with_its_segments() -> None:
    stage = Stage(units(3, 3, 3, 3, spines=(2, 2)))
    assert places(stage, segmented(4, 2, required="spine")) == ["p-1", "p-2", "p-4", "p-5"]
    assert places(stage, job(nodes=2, gpus=4, topology=Topology("unit"))) == ["p-7", "p-8"]
    mine = stage.submit(segmented(4, 2, required="spine"))
    stage.look()
    why = stage.why(mine)
    assert why.sentence() == (
        "it needs 2 segments of 2 node(s) at once, each within one unit: spine s1 comes closest and has 1 of them free "
        "(6 nodes would fit in pool p in all)"
    )


@pytest.mark.parametrize(
    ("sizes", "spec", "code"),
    [
        ((3, 3), segmented(6, 2), "never.segments"),  # six nodes, and only two segments of two
        ((3, 3), segmented(4, 2), ""),
        ((2, 2, 2), segmented(6, 3), "never.segments"),
        ((2, 2, 2), segmented(6, 3, "spine"), ""),
        ((2, 2, 2), segmented(6, 3, "site"), ""),
        ((2, 2), segmented(2, 1, "rack"), "never.level"),
        ((2, 2), segmented(2, 2, NODE_LEVEL), "never.segments"),
        ((2, 2), segmented(6, 2), "never.nodes"),
    ],
)
def test_what_no_cluster_of_these_could_ever_hold_is_refused_at_submit(
    sizes: tuple[int, ...], spec: JobSpec, code: str
) -> None:
    stage = Stage(units(*sizes))
    found = refuse.never(stage.state, spec, "alice")
    assert (found.code if found else "") == code
    if not code:
        assert places(stage, spec) != ["wait.next-pass"]


def test_the_refusal_counts_segments_by_the_level_that_the_gang_requires() -> None:
    stage = Stage(units(2, 3, 2, 2, spines=(2, 2)))
    found = refuse.never(stage.state, segmented(6, 2), "alice")
    assert found is None
    found = refuse.never(stage.state, segmented(6, 2, required="spine"), "alice")
    assert found is not None
    assert found.code == "never.domain"
    stage = Stage(units(3, 3, 2, 2, spines=(2, 2)))
    found = refuse.never(stage.state, segmented(6, 2, required="spine"), "alice")
    assert found is not None
    assert found.sentence() == (
        "it needs 3 segments of 2 node(s), each within one unit, and the best place for it, spine s0, has room for 2 "
        "of them in pool p"
    )


def test_nodes_are_kept_for_whole_segments() -> None:
    """It waits for the unit where a whole segment is free first, not for single nodes that are free sooner."""
    stage = Stage(units(2, 2))
    soon = [stage.submit(job(nodes=1, gpus=4, time_limit_s=limit)) for limit in (60, 600, 120, 120)]
    stage.look()
    mine = stage.submit(segmented(2, 2))
    stage.look()
    assert stage.outcome(mine) == "wait.gpus"
    stage.end(soon[2])
    late = [stage.submit(job(nodes=1, gpus=4, time_limit_s=30)) for _ in range(2)]
    stage.look()
    assert [stage.outcome(one) for one in late] == ["wait.order", "wait.order"]
    stage.end(soon[0])
    stage.look()
    assert [stage.outcome(one) for one in (mine, *late)] == ["wait.gpus", STARTS, "wait.order"]
    stage.end(soon[3])
    stage.look()
    assert stage.outcome(mine) == STARTS


def test_jobs_of_other_segments_are_other_shapes() -> None:
    first, second = segmented(4, 2), segmented(4, 4)
    assert class_key(first, "alice") != class_key(second, "alice")
    assert class_key(first, "alice") == class_key(replace(first, name="other"), "alice")
