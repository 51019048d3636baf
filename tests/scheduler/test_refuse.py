"""What can never run is refused with its numbers, and nothing else is.

Comes in: small clusters and one job each. Goes out: proof of code, sentence, and that whoever is refused for the
cluster's sake would not start on it when it is empty.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import bundled, spec
from orchestrator.ledger import events
from orchestrator.model.cluster import ClusterSpec, FabricDomain, GpuSpec, Queue, Share, SiteFabric, Unit
from orchestrator.model.job import JobSpec, PerNode, Request, Topology
from orchestrator.model.node import Device, Mark, MarkKind, NodeFacts
from orchestrator.scheduler import refuse
from tests.builders import GPU, Fold, cluster, grouped, job, pool, queue
from tests.scheduler.test_cycle import enact, run

GIB = 1 << 30
UNITS = SiteFabric(
    ("unit", "spine"),
    (Unit("su-1", ("p-1", "p-2", "p-3")), Unit("su-2", ("p-4", "p-5")), Unit("su-3", ("p-6",))),
    (FabricDomain("spine", "sp-1", ("su-1", "su-2")), FabricDomain("spine", "sp-2", ("su-3",))),
)
SIX = cluster(
    pool(nodes=6, gpus=4, cores=16, labels=(("row", "1"), ("tier", "gold"))),
    pool("l4", nodes=1, gpus=1, cores=8, model="L4"),
    fabric=UNITS,
)


def near(level: str, **rest: Any) -> JobSpec:
    """A gang that must stay within a level."""
    return job(topology=Topology(required=level), **rest)


def share(milli: int = 0, memory: int = 0, **rest: Any) -> JobSpec:
    """A task that takes part of a device."""
    each = PerNode(gpu_milli=milli, gpu_memory=memory)
    return replace(job(**rest), request=Request(tasks=1, per_task=each))


def labelled(*labels: tuple[str, str], **rest: Any) -> JobSpec:
    """A task on a pool with these labels."""
    asked = job(**rest)
    return replace(asked, request=Request(tasks=1, per_task=replace(asked.request.per_task, labels=labels)))


NEVER: dict[str, tuple[JobSpec, str, str]] = {
    "more nodes than the largest unit has": (
        near("unit", nodes=4, gpus=1),
        "never.domain",
        "its 4 nodes must stay within one unit, and the largest, su-1, takes 3 of them in pool p",
    ),
    "more nodes than the largest spine has": (
        near("spine", nodes=6, gpus=1),
        "never.domain",
        "its 6 nodes must stay within one spine, and the largest, sp-1, takes 5 of them in pool p",
    ),
    "more tasks than the largest unit takes": (
        near("unit", tasks=13, gpus=1),
        "never.domain",
        "its 13 tasks must stay within one unit, and the largest, su-1, takes 12 of them in pool p",
    ),
    "tasks that split badly over the nodes of a unit": (
        near("unit", tasks=4, gpus=3),
        "never.domain",
        "takes 3 of them",
    ),
    "a GPU that stands in no unit": (
        near("unit", gpus=1, models=("L4",)),
        "never.domain",
        "its 1 tasks must stay within one unit, and the largest, -, takes 0 of them in pool l4",
    ),
    "more nodes than there are, wherever they stand": (
        near("unit", nodes=9, gpus=1),
        "never.nodes",
        "the best pool has 6 such node(s)",
    ),
    "a preferred level that no site has": (
        job(nodes=6, topology=Topology(preferred="rail")),
        "never.level",
        "no site has a topology level rail",
    ),
    "a level that no site has": (
        near("rail", nodes=1),
        "never.level",
        "no site has a topology level rail",
    ),
    "more than a whole device": (
        share(milli=1500),
        "never.share",
        "it needs 1.5 of one GPU",
    ),
    "labels that no pool has": (
        labelled(("row", "2")),
        "never.labels",
        "no pool has the label(s) row=2",
    ),
    "two labels, of which only one is there": (
        labelled(("row", "1"), ("tier", "iron")),
        "never.labels",
        "row=1, tier=iron",
    ),
    "what each is there, and nowhere together": (
        labelled(("row", "1"), models=("L4",)),
        "never.together",
        "GPUs of model L4, label row=1",
    ),
}


@pytest.mark.parametrize("name", NEVER)
def test_never(name: str) -> None:
    asked, code, words = NEVER[name]

    found = refuse.never(Fold(SIX).state, asked, "alice")

    assert found is not None
    assert found.code == code
    assert words in found.sentence()
    assert "{" not in found.sentence() + found.action()
    assert refuse.may_wait(found) == (code != "never.share")


RUNS: dict[str, JobSpec] = {
    "just as many nodes as the largest unit has": near("unit", nodes=3, gpus=4),
    "nodes of two units within one spine": near("spine", nodes=5, gpus=4),
    "within one site, though its fabric does not name it": near("site", nodes=6),
    "a level that is only preferred": job(nodes=6, topology=Topology(preferred="unit")),
    "a whole device as a share": share(milli=1000),
    "labels of its pool": labelled(("tier", "gold"), ("row", "1")),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_runs_is_not_refused(name: str) -> None:
    fold = Fold(SIX)
    assert refuse.never(fold.state, RUNS[name], "alice") is None
    number = fold.submit(RUNS[name])
    assert [start.attempt.job for start in run(fold.state)[0]] == [number]


# --- what is not known yet is no reason -------------------------------------------------------------------------


def sized(memory: int = 0, reported: tuple[int, ...] = ()) -> Fold:
    """Two nodes of one GPU; the file says `memory` of each, the first nodes have reported."""
    wanted = replace(pool(nodes=2, gpus=1), gpu=GpuSpec(GPU, 1, memory=memory))
    fold = Fold(cluster(wanted), ready=False)
    for number, size in enumerate(reported, 1):
        facts = NodeFacts("boot-1", 64, 64 * GIB, (Device(0, GPU, size),))
        fold(events.NodeJoined(f"p-{number}", facts, f"outbox-{number}"))
        fold(events.NodeUnmarked(f"p-{number}", MarkKind.UNPROVED))
    return fold


@pytest.mark.parametrize(
    ("fold", "refused"),
    [
        (sized(), False),  # nobody has said
        (sized(reported=(80 * GIB,)), False),  # the second may have more
        (sized(reported=(80 * GIB, 80 * GIB)), True),
        (sized(reported=(80 * GIB, 141 * GIB)), False),
        (sized(reported=(0, 0)), False),  # devices that do not tell their memory
        (sized(80 * GIB), True),
        (sized(80 * GIB, (141 * GIB,)), False),
    ],
)
@pytest.mark.parametrize("asked", [share(memory=100 * GIB), share(milli=500, memory=100 * GIB)])
def test_device_memory_counts_as_far_as_it_is_known(fold: Fold, refused: bool, asked: JobSpec) -> None:
    found = refuse.never(fold.state, asked, "alice")
    assert (found.code if found else None) == ("never.device-memory" if refused else None)
    if found is not None:
        assert "it needs 100GiB of one GPU's memory; the largest" in found.sentence()
        assert "in pool p, has 80GiB" in found.sentence()


def test_nodes_that_have_not_reported_count_as_the_file_wants_them() -> None:
    fold = Fold(SIX, ready=False)
    assert refuse.never(fold.state, near("unit", nodes=3, gpus=4, cores=16), "alice") is None
    assert refuse.never(fold.state, near("unit", nodes=3, gpus=4, cores=17), "alice") is not None


def test_a_level_of_which_the_file_tells_nothing_is_the_whole_site() -> None:
    fold = Fold(cluster(pool(nodes=6, gpus=4), fabric=SiteFabric(("unit", "spine"), UNITS.units)))
    assert refuse.never(fold.state, near("spine", nodes=6), "alice") is None
    assert refuse.never(fold.state, near("unit", nodes=4), "alice") is not None
    fold.submit(near("spine", nodes=6))
    assert len(run(fold.state)[0]) == 1


def test_the_example_of_a_job_can_run_on_the_example_of_a_cluster() -> None:
    atlas = bundled.find("inventories") / "atlas"
    wanted = spec.load_cluster(str(atlas / "cluster.yaml")).cluster
    asked = spec.load_job(str(atlas / "job.yaml"), wanted).job
    assert wanted is not None
    assert asked is not None
    assert asked.topology.required == "spine"
    assert refuse.never(Fold(wanted, ready=False).state, asked, "alice") is None


def test_a_rule_of_the_queue_is_none_that_may_wait() -> None:
    small = queue("small", max_gpus_per_user=4, max_time_limit_s=3600)
    state = Fold(cluster(pool(nodes=2), queues=(queue(), small))).state
    for asked in (job(queue="nope"), job(tasks=5, queue="small"), job(queue="small", time_limit_s=7200)):
        found = refuse.never(state, asked, "alice")
        assert found is not None
        assert not refuse.may_wait(found)


# --- queued all the same ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in NEVER if NEVER[name][1] != "never.share" and "preferred" not in name]
)
def test_who_is_queued_against_the_refusal_waits_with_that_and_keeps_nobody_waiting(name: str) -> None:
    fold = Fold(SIX)
    fold.submit(NEVER[name][0])
    other = fold.submit(job(nodes=1, gpus=4))

    decisions, told = run(fold.state)

    assert [start.attempt.job for start in decisions] == [other]
    (why,) = told.reasons.values()
    assert why.code == "wait.never"
    assert "{" not in why.sentence() + why.action()


def test_nodes_that_are_closed_or_have_not_told_are_hope() -> None:
    fold = Fold(SIX)
    fold(events.NodeMarked("p-1", Mark(MarkKind.CORDONED, "", "", 0)))
    fold.submit(near("unit", nodes=3, gpus=4))
    (why,) = run(fold.state)[1].reasons.values()
    assert (why.code, why.fact("closed")) == ("wait.nodes-closed", 1)

    fold = Fold(SIX, ready=False)
    fold.submit(near("unit", nodes=3, gpus=4))
    (why,) = run(fold.state)[1].reasons.values()
    assert (why.code, why.fact("closed")) == ("wait.nodes-closed", 6)


asks = st.builds(
    job,
    nodes=st.integers(0, 6),
    tasks=st.integers(1, 14),
    gpus=st.integers(0, 5),
    cores=st.integers(0, 17),
    topology=st.builds(Topology, required=st.sampled_from(["", "unit", "spine", "site", "rail"])),
)


@pytest.mark.property
@given(asks, st.lists(st.sampled_from(["p-1", "p-2", "p-3", "p-4", "p-5", "p-6"]), unique=True))
def test_what_is_refused_is_what_an_empty_cluster_does_not_start(asked: JobSpec, outside: list[str]) -> None:
    fold = Fold(without(SIX, outside))
    refused = refuse.never(fold.state, asked, "alice")
    fold.submit(asked)
    decisions, told = run(fold.state)
    enact(fold, decisions)
    assert bool(decisions) == (refused is None)
    assert [why.code for why in told.reasons.values()] == (["wait.never"] if refused else [])


def without(spec: ClusterSpec, nodes: list[str]) -> ClusterSpec:
    """These nodes stand in no unit."""
    units = tuple(Unit(one.name, tuple(n for n in one.nodes if n not in nodes)) for one in UNITS.units)
    return replace(spec, sites=(replace(spec.sites[0], fabric=replace(UNITS, units=units)),))


def asking(**rest: Any) -> JobSpec:
    """A gang of two nodes with this of each."""
    spec = job(nodes=2)
    return replace(spec, request=replace(spec.request, per_node=PerNode(**rest)))


@pytest.mark.parametrize(
    "topology", [Topology(preferred="rack"), Topology(required="unit", preferred="Unit")]
)
def test_a_level_that_no_site_has_is_refused_also_where_it_is_only_preferred(topology: Topology) -> None:
    found = refuse.never(Fold(SIX).state, replace(job(nodes=2), topology=topology), "alice")
    assert found is not None
    assert found.code == "never.level"
    assert "unit, spine, nvlink, site" in found.action()


@pytest.mark.parametrize("level", ["unit", "spine", "site"])
def test_levels_of_sites_and_the_site_itself_are_taken(level: str) -> None:
    spec = replace(job(nodes=2), topology=Topology(level, level))
    assert refuse.never(Fold(SIX).state, spec, "alice") is None


def test_work_with_a_label_goes_where_that_is() -> None:
    fold = Fold(cluster(pool("slow"), pool("fast", labels=(("network", "fast"),))))
    fold.submit(asking(gpus=1, labels=(("network", "fast"),)))
    ((start,), _) = run(fold.state)
    assert [part.node for part in start.placements] == ["fast-1", "fast-2"]


def test_a_node_is_a_domain_of_its_own() -> None:
    spec = replace(job(tasks=4), topology=Topology("nvlink"))
    assert refuse.never(Fold(SIX).state, spec, "alice") is None
    found = refuse.never(Fold(SIX).state, replace(job(nodes=2), topology=Topology("nvlink")), "alice")
    assert found is not None
    assert found.code == "never.domain"


def test_more_than_other_queues_leave_is_refused_at_submit() -> None:
    keeper = Queue("a", guarantee=(Share(12, "p"),), lending_limit=(Share(4, "p"),))
    state = Fold(cluster(pool(nodes=2, gpus=8), queues=(keeper, Queue("b")))).state
    assert refuse.never(state, job(tasks=8, queue="b"), "alice") is None
    assert refuse.never(state, job(tasks=16, queue="a"), "alice") is None
    found = refuse.never(state, job(tasks=9, queue="b"), "alice")
    assert found is not None
    assert not refuse.may_wait(found)
    assert found.sentence() == (
        "queue(s) a keep 8 GPU(s) of pool p free for their own work: 8 are left for others at most, "
        "and the job alone needs 9"
    )


def test_what_other_queues_leave_counts_pool_by_pool_for_groups() -> None:
    """Each pool leaves three, so three of each are no more than what is left."""
    keeper = Queue(
        "a",
        guarantee=(Share(1, "p"), Share(1, "q")),
        lending_limit=(Share(0, "p"), Share(0, "q")),
    )
    pools = pool("p", nodes=1, gpus=4, model="A"), pool("q", nodes=1, gpus=4, model="B")
    state = Fold(cluster(*pools, queues=(keeper, Queue("b")))).state
    for gpus, code in ((3, ""), (4, "never.lent")):
        parts = {"x": job(gpus=gpus, models=("A",)), "y": job(gpus=gpus, models=("B",))}
        found = refuse.never(state, grouped(parts=parts, queue="b"), "alice")
        assert (found.code if found is not None else "") == code


def test_nodes_that_groups_take_at_least_count_all_instances_of_a_gpu() -> None:
    state = Fold(cluster(pool(nodes=2, gpus=1, mig=True))).state
    for tasks, code in ((7, ""), (8, "never.groups")):
        parts = {"x": job(mig="1g.10gb", tasks=tasks), "y": job(mig="7g.80gb")}
        found = refuse.never(state, grouped(parts=parts), "alice")
        assert (found.code if found is not None else "") == code


def test_instances_on_nodes_of_their_own_count_for_as_few_nodes_as_hold_them() -> None:
    spec = cluster(pool(nodes=2, gpus=2, mig=True), queues=(queue(max_gpus_per_user=2),))
    state = Fold(spec).state
    for tasks, code in ((14, ""), (15, "never.limit")):
        asked = job(mig="1g.10gb", tasks=tasks)
        asked = replace(asked, request=replace(asked.request, exclusive=True))
        found = refuse.never(state, asked, "alice")
        assert (found.code if found is not None else "") == code
