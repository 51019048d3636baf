"""Faults that users of schedulers have met, one scene each: gangs, quotas, topology, shares of devices, accounts."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from orchestrator.ledger import events
from orchestrator.model.attempt import Placement
from orchestrator.model.cluster import ClusterSpec, Pool, Queue, QueueLimits, Share
from orchestrator.model.cluster_sites import FabricDomain, SiteFabric, Unit
from orchestrator.model.decisions import Buy
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import Topology
from orchestrator.model.node import Mark, MarkKind
from orchestrator.scheduler import refuse
from tests.autoscale.scene import Scene as Bought
from tests.autoscale.scene import elastic, hybrid
from tests.builders import ALICE, BOB, cluster, job, pool, queue
from tests.scheduler.scenes import GIB, MIB, STARTS, Scene, Stage, share

WAITS_FOR_GPUS, AT_LIMIT, IN_ORDER = "wait.gpus", "wait.limit", "wait.order"


def borrows(name: str, guarantee: int, borrow: int, **rest: object) -> Queue:
    """A queue with so many GPUs of pool `p` for certain, and so many at most beyond."""
    return Queue(name, guarantee=(Share(guarantee, "p"),), borrow_limit=(Share(borrow, "p"),), **rest)  # type: ignore[arg-type]


def keeps(name: str, guarantee: int, lends: int, **rest: object) -> Queue:
    """A queue with so many GPUs of pool `p` for certain, of which others may use so many."""
    return Queue(name, guarantee=(Share(guarantee, "p"),), lending_limit=(Share(lends, "p"),), **rest)  # type: ignore[arg-type]


def fabric(
    *pools: Pool, units: dict[str, tuple[str, ...]], spines: dict[str, tuple[str, ...]]
) -> ClusterSpec:
    """A cluster of which the nodes stand in units, and the units under spines."""
    spec = cluster(*pools)
    levels = SiteFabric(
        ("unit", "spine"),
        tuple(Unit(name, nodes) for name, nodes in units.items()),
        tuple(FabricDomain("spine", name, members) for name, members in spines.items()),
    )
    return replace(spec, sites=(replace(spec.sites[0], fabric=levels),))


TWO_SPINES = {
    "units": {"u1": ("p-1", "p-2"), "u2": ("p-3", "p-4"), "u3": ("p-5", "p-6"), "u4": ("p-7", "p-8")},
    "spines": {"s1": ("u1", "u2"), "s2": ("u3", "u4")},
}
TWO_MODELS = cluster(pool("p", 1, 4, model="A"), pool("q", 1, 4, model="B"))
EIGHT = pool(nodes=1, gpus=8)

SCENES: dict[str, Scene] = {
    "two gangs for all nodes at once: one has all, the other nothing": Scene(
        [job(nodes=100, gpus=4), job(nodes=100, gpus=4)],
        [STARTS, WAITS_FOR_GPUS],
        cluster(pool(nodes=100, gpus=4)),
        says={1: "0 of 100 open"},
    ),
    "a gang that waits holds nothing, and who does not want its nodes runs": Scene(
        [job(nodes=2, gpus=4), job(nodes=1, gpus=0, cores=8)],
        [WAITS_FOR_GPUS, STARTS],
        runs=[job(gpus=1)],
    ),
    "a head that its quota stops keeps no other queue from idle GPUs": Scene(
        [job(gpus=3, queue="a"), job(gpus=3, queue="b"), job(gpus=1, queue="b")],
        [AT_LIMIT, STARTS, STARTS],
        cluster(EIGHT, queues=(borrows("a", 2, 1), borrows("b", 2, 4))),
        runs=[job(gpus=1, queue="a")],
        says={0: "queue a may have 3 GPU(s) of pool p and has 1: this job would pass that by 1"},
    ),
    "what a queue does not lend stays free for it, and no other queue gets it": Scene(
        [job(gpus=6, queue="b"), job(gpus=3, queue="b"), job(gpus=2, queue="a")],
        ["wait.lent", STARTS, STARTS],
        cluster(EIGHT, queues=(keeps("a", 6, 1), Queue("b"))),
        says={0: "queue(s) a keep 3 GPU(s) of pool p free for their own work: 0 are left for others"},
    ),
    "what it uses itself of what it keeps is kept no more": Scene(
        [job(gpus=4, queue="b"), job(gpus=3, queue="b")],
        ["wait.lent", STARTS],
        cluster(EIGHT, queues=(keeps("a", 6, 1), Queue("b"))),
        runs=[job(gpus=3, queue="a")],
        says={0: "keep 2 GPU(s)"},
    ),
    "queues of one parent keep their parts from each other, and may borrow the rest": Scene(
        [job(gpus=4, queue="a1"), job(gpus=2, queue="a1"), job(gpus=2, queue="b"), job(gpus=1, queue="b")],
        ["wait.lent", STARTS, "wait.lent", STARTS],
        cluster(
            EIGHT,
            queues=(
                keeps("a", 7, 2),
                keeps("a1", 2, 2, parent="a"),
                keeps("a2", 5, 0, parent="a"),
                Queue("b"),
            ),
        ),
        says={0: "queue(s) a2 keep 5", 2: "queue(s) a keep 5"},
    ),
    "a closed node's GPUs are not there to be lent": Scene(
        [job(gpus=2, queue="b"), job(gpus=1, queue="b"), job(gpus=2, queue="a")],
        ["wait.lent", STARTS, STARTS],
        cluster(pool(nodes=2, gpus=4), queues=(keeps("a", 3, 0), Queue("b"))),
        closed=("p-2",),
        says={0: "0 are left for others, and this job would pass that by 2"},
    ),
    "without a lending limit all of a guarantee may be borrowed": Scene(
        [job(gpus=8, queue="b")],
        [STARTS],
        cluster(EIGHT, queues=(Queue("a", guarantee=(Share(6, "p"),)), Queue("b"))),
    ),
    "a head that waits for one model keeps nobody from another": Scene(
        [job(gpus=4, models=("A",)), job(gpus=4, models=("B",))],
        [WAITS_FOR_GPUS.replace("gpus", "tasks"), STARTS],
        TWO_MODELS,
        runs=[job(gpus=1, models=("A",))],
    ),
    "work that names a model and takes no GPU of it is work like any other": Scene(
        [job(gpus=0, cores=2, models=("A",))], [STARTS], TWO_MODELS
    ),
    "ten jobs of other shapes that need a closed node wedge nothing": Scene(
        [*(job(nodes=5, gpus=1, cores=cores) for cores in range(1, 11)), job(nodes=2, gpus=1)],
        [*["wait.nodes-closed"] * 10, STARTS],
        cluster(pool(nodes=5, gpus=1)),
        closed=("p-1", "p-2", "p-3"),
        says={0: "3 of 5"},
    ),
    "a job without GPUs does not delay one before it that waits for cores": Scene(
        [job(gpus=0, cores=8, priority=9), job(gpus=0, cores=4)],
        ["wait.tasks", IN_ORDER],
        cluster(pool(nodes=1, gpus=0, cores=8)),
        runs=[job(gpus=0, cores=4)],
    ),
    "a person at a limit stands first and holds up neither others nor their own other queue": Scene(
        [job(queue="a", priority=9), job(queue="a"), job(queue="b")],
        [AT_LIMIT, STARTS, STARTS],
        cluster(EIGHT, queues=(queue("a", max_jobs_per_user=1), queue("b"))),
        runs=[job(queue="a")],
        owners=[ALICE, BOB, ALICE],
    ),
    "two queues want the last node in one pass: one has it, the other waits": Scene(
        [job(nodes=1, gpus=4, queue="a"), job(nodes=1, gpus=4, queue="b")],
        [WAITS_FOR_GPUS, STARTS],
        cluster(pool(nodes=2, gpus=4), queues=(Queue("a"), Queue("b"))),
        runs=[
            job(nodes=1, gpus=4, queue="a"),
        ],
        owners=[ALICE, BOB],
    ),
    "two gangs want the last domain in one pass: one has it, the other waits": Scene(
        [job(nodes=2, gpus=8, topology=Topology("unit")), job(nodes=2, gpus=8, topology=Topology("unit"))],
        [STARTS, "wait.gpus"],
        fabric(pool(nodes=8), **TWO_SPINES),  # type: ignore[arg-type]
        runs=[job(nodes=2, gpus=8, topology=Topology("unit")) for _ in range(3)],
    ),
    "enough is free in all and no domain holds the gang": Scene(
        [job(nodes=3, gpus=8, topology=Topology("spine"))],
        ["wait.domain"],
        fabric(pool(nodes=8), **TWO_SPINES),  # type: ignore[arg-type]
        runs=[job(nodes=2, gpus=8, topology=Topology("unit"))],
        closed=("p-7", "p-8"),
        says={0: "takes 2 of them now (4 would fit in pool p in all)"},
    ),
    "a level that no site has: the job waits and keeps nobody": Scene(
        [job(nodes=1, gpus=4, topology=Topology("rack")), job(nodes=1, gpus=4)],
        ["wait.never", STARTS],
    ),
    "two halves are free, and 0.8 of one device is not": Scene(
        [share(800)],
        ["wait.share"],
        cluster(pool(nodes=1, gpus=2)),
        runs=[
            share(500),
            share(600),
        ],
        says={0: "largest free share in pool p is 0.5"},
    ),
    "a share by memory is counted in bytes": Scene(
        [share(memory=2_000 * MIB) for _ in range(24)],
        [STARTS] * 24,
        cluster(pool(nodes=1, gpus=2)),
        device_memory=46_068 * MIB,
    ),
    "three times 12 GiB on 24 GiB: two": Scene(
        [share(memory=12 * GIB), share(memory=12 * GIB), share(memory=12 * GIB, priority=-1)],
        [STARTS, STARTS, "wait.device-memory"],
        cluster(pool(nodes=1, gpus=1)),
        device_memory=24 * GIB,
    ),
    "exactly as much memory as a device has is enough": Scene(
        [share(memory=5_120 * MIB)], [STARTS], cluster(pool(nodes=1, gpus=1)), device_memory=5_120 * MIB
    ),
    "a node whose devices are taken whole gets no share": Scene(
        [share(100)], ["wait.share"], cluster(pool(nodes=1, gpus=1)), runs=[job(gpus=1)], says={0: "is 0"}
    ),
    "a device of which a share is taken is given to nobody whole": Scene(
        [job(gpus=1)], ["wait.tasks"], cluster(pool(nodes=1, gpus=1)), runs=[share(100)]
    ),
    "little is left of a device, and shares by memory share it": Scene(
        [share(memory=2_000 * MIB, tasks=3)],
        [STARTS],
        cluster(pool(nodes=1, gpus=1)),
        runs=[share(950)],
        device_memory=46_068 * MIB,
    ),
    "shares that lack cores are told so": Scene(
        [job(nodes=1, gpus=4, cores=60), job(nodes=1, gpus=1, cores=8)],
        [STARTS, "wait.cores"],
        cluster(pool(nodes=1, gpus=8, cores=64)),
    ),
    "a pool that could never hold the gang is no way out of a limit": Scene(
        [job(nodes=1, gpus=4)],
        [AT_LIMIT],
        cluster(EIGHT, pool("q", 2, 2), queues=(borrows("default", 2, 2),)),
        runs=[job(gpus=1, models=())],
    ),
    "shares by memory go to another pool when their limit in one is reached": Scene(
        [share(memory=16 * GIB)],
        [STARTS],
        cluster(EIGHT, pool("q", 1, 1), queues=(borrows("default", 1, 0),)),
        runs=[job(nodes=1, gpus=1, cores=63)],
    ),
    "guarantees of more than there is: who holds less for its weight goes first": Scene(
        [*(job(queue="a") for _ in range(8)), *(job(queue="b") for _ in range(8))],
        [*[STARTS] * 4, *["wait.tasks"] * 4, *[STARTS] * 4, *["wait.tasks"] * 4],
        cluster(EIGHT, queues=(borrows("a", 8, 0), borrows("b", 8, 0))),
        owners=[*[ALICE] * 8, *[BOB] * 8],
    ),
    "what is guaranteed goes before what others borrow": Scene(
        [*(job(queue="a") for _ in range(8)), *(job(queue="b") for _ in range(6))],
        [*[STARTS] * 2, *["wait.tasks"] * 6, *[STARTS] * 6],
        cluster(EIGHT, queues=(Queue("a", weight=100), borrows("b", 6, 0))),
        owners=[*[ALICE] * 8, *[BOB] * 6],
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str) -> None:
    play(SCENES[name])


def play(scene: Scene) -> None:
    """One scene: who starts, and what is said of the others."""
    stage = Stage(scene.spec, scene.device_memory)
    for one in scene.runs:
        ran = stage.submit(one)
        assert ran in stage.look()
    for node in scene.closed:
        stage(events.NodeMarked(node, Mark(MarkKind.CORDONED, "", "", 0)))
    owners = [*scene.owners, *[ALICE] * len(scene.jobs)]
    came = [stage.submit(one, owner) for one, owner in zip(scene.jobs, owners, strict=False)]
    stage.look()
    assert [stage.outcome(one) for one in came] == scene.want
    for place, words in scene.says.items():
        assert words in stage.why(came[place]).sentence()
    _nobody_holds_a_device_twice(stage)


def _nobody_holds_a_device_twice(stage: Stage) -> None:
    shares = [
        one for one in stage.state.jobs.values() if one.attempt and one.attempt.parts[0].placement.milli
    ]
    for holders in stage.devices().values():
        assert len(holders) == 1 or set(holders) <= {one.id for one in shares}


@pytest.mark.parametrize("nodes", [1, 2])
def test_sixteen_halves_on_eight_devices_are_two_each_in_whatever_order_they_come(nodes: int) -> None:
    """S6, a hundred orders: persons, priorities and moments are mixed."""
    for seed in range(100):
        dice = random.Random(seed)
        stage = Stage(cluster(pool(nodes=nodes, gpus=8 // nodes)))
        for _ in range(16):
            stage.submit(share(500, priority=dice.randint(0, 3)), dice.choice((ALICE, BOB)))
            if dice.random() < 0.2:
                stage.look()
        stage.look()
        assert Counter(len(holders) for holders in stage.devices().values()) == {2: 8}


def test_twenty_three_times_2000_mib_are_on_a_card_of_46068_mib() -> None:
    """S7."""
    stage = Stage(cluster(pool(nodes=1, gpus=1)), 46_068 * MIB)
    jobs = [stage.submit(share(memory=2_000 * MIB)) for _ in range(24)]
    stage.look()
    assert [stage.outcome(one) for one in jobs] == [STARTS] * 23 + ["wait.device-memory"]
    assert stage.why(jobs[-1]).fact("memory_left") == 68 * MIB


def test_small_jobs_leave_a_whole_node_for_a_large_one() -> None:
    """S9, of nodes."""
    stage = Stage()
    for gpus in (1, 2, 1):
        stage.submit(job(gpus=gpus))
        stage.look()
    large = stage.submit(job(tasks=1, gpus=4))
    assert large in stage.look()
    assert {node for (node, _), holders in stage.devices().items() if holders == [large]} == {"p-2"}


@pytest.mark.parametrize("stream", [(1, 2, 1), (2, 1, 1), (1, 1, 2), (1, 1, 1, 1), (2, 2), (3, 1)])
def test_small_jobs_leave_a_whole_socket_for_a_large_one(stream: tuple[int, ...]) -> None:
    """S9, of sockets: two of four GPUs, and jobs that end meanwhile."""
    stage = Stage(cluster(pool(nodes=1, gpus=8)), sockets=2)
    small = []
    for gpus in stream:
        small.append(stage.submit(job(gpus=gpus)))
        stage.look()
    stage.end(small[0])
    stage.submit(job(gpus=stream[0]))
    stage.look()
    large = stage.submit(job(gpus=4))
    assert large in stage.look()
    taken = sorted(slot for (_, slot), holders in stage.devices().items() if holders == [large])
    assert taken in ([0, 1, 2, 3], [4, 5, 6, 7])


def test_what_can_never_run_is_refused_with_the_numbers_and_what_can_runs() -> None:
    """S13."""
    stage = Stage()
    found = refuse.never(stage.state, job(nodes=5, gpus=1), "alice")
    assert found is not None
    assert found.code == "never.nodes"
    assert found.fact("most") == 2
    parked = [
        stage.submit(job(nodes=5, gpus=1)) for _ in range(10)
    ]  # as if nodes had left after their submit
    assert stage.submit(job(nodes=2, gpus=1)) in stage.look()
    assert {stage.outcome(one) for one in parked} == {"wait.never"}


def test_nothing_is_bought_for_a_job_that_its_quota_stops() -> None:
    """S15: 104 GPUs are allowed, 8 are in use, 104 are asked for."""
    research = Queue("research", borrow_limit=(Share(104, "burst"),))
    bought = Bought(hybrid(elastic(most=16), queues=(research,)))
    bought.submit(job(nodes=1, gpus=8, queue="research"))
    bought.bought()
    assert bought.look() == ()
    blocked = bought.submit(job(nodes=13, gpus=8, queue="research"))
    assert not [one for one in bought.look() if isinstance(one, Buy)]
    assert bought.reason_of(blocked).code == AT_LIMIT
    assert bought.reason_of(blocked).fact("over") == 8


def test_device_ids_of_different_passes_never_meet() -> None:
    stage = Stage(cluster(pool(nodes=1, gpus=4)))
    for gpus in (1, 2, 1):
        stage.submit(job(gpus=gpus))
        stage.look()
    assert sorted(slot for _, slot in stage.devices()) == [0, 1, 2, 3]
    stage.end(2)
    stage.submit(job(gpus=2))
    stage.look()
    assert {slot: holders for (_, slot), holders in stage.devices().items()} == {
        0: [1],
        1: [4],
        2: [4],
        3: [3],
    }


def test_quota_is_free_when_its_work_is_and_not_before() -> None:
    stage = Stage(cluster(EIGHT, queues=(Queue("default", limits=QueueLimits(max_running_jobs=2)),)))
    jobs = [stage.submit(job()) for _ in range(4)]
    stage.look()
    assert [stage.outcome(one) for one in jobs] == [STARTS, STARTS, AT_LIMIT, AT_LIMIT]
    stage.end(jobs[0])
    stage.look()
    assert [stage.outcome(one) for one in jobs[1:]] == [STARTS, STARTS, AT_LIMIT]


def test_a_node_that_leaves_while_it_works_gives_its_quota_back_when_the_work_is_over() -> None:
    spec = cluster(pool(nodes=2, gpus=4), queues=(queue(max_gpus_per_user=6),))
    stage = Stage(spec)
    wide = stage.submit(job(nodes=2, gpus=2))
    stage.look()
    smaller = cluster(pool(nodes=1, gpus=4), queues=(queue(max_gpus_per_user=6),))
    stage(events.ClusterApplied(smaller, "another"))
    later = stage.submit(job(gpus=3, priority=1)), stage.submit(job(gpus=2))
    stage.look()
    assert [stage.outcome(one) for one in later] == [AT_LIMIT, STARTS]
    stage.end(wide)
    assert "p-2" not in stage.state.nodes
    stage.look()
    assert stage.outcome(later[0]) == "wait.tasks"


@pytest.mark.parametrize("closed", [(), ("p-2",)])
def test_what_is_kept_for_others_once_work_has_ended_is_said_also_where_nodes_are_closed(
    closed: tuple[str, ...],
) -> None:
    """Now the queue uses what it keeps, and nodes are what lacks; when its work ends it keeps them from the job."""
    stage = Stage(cluster(pool(nodes=2, gpus=2), queues=(keeps("a", 3, 0), Queue("b"))))
    stage.submit(job(tasks=3, queue="a"))
    stage.look()
    for name in closed:
        stage(events.NodeMarked(name, Mark(MarkKind.CORDONED, "", "", 0)))
    waits = stage.submit(job(tasks=4, queue="b"))
    stage.look()
    why = stage.why(waits)
    assert why.code == ("wait.nodes-closed" if closed else "wait.tasks")
    assert why.also is not None
    assert (why.also.code, why.also.fact("kept")) == ("wait.lent", 3)


def test_a_slot_that_lost_its_device_is_no_device_that_is_free_first() -> None:
    """Two GPUs are free together on p-2 in a minute, and on p-1, which lost its first, in hours."""
    stage = Stage(cluster(pool(nodes=2, gpus=3)))
    record = stage.state.nodes["p-1"].facts
    assert record is not None
    stage(events.NodeJoined("p-1", replace(record, devices=record.devices[1:]), "outbox-p-1"))
    for mark in stage.state.nodes["p-1"].marks:
        stage(events.NodeUnmarked("p-1", mark.kind))
    for node, slots, limit_s in (("p-1", (2,), 9_000), ("p-2", (0, 1), 60)):
        one = stage.submit(job(gpus=len(slots), time_limit_s=limit_s))
        stage(events.AttemptAllocated(AttemptId(one, 1), (Placement(node, slots),), time_limit_s=limit_s))
    first, second = stage.submit(job(gpus=2, priority=1)), stage.submit(job(gpus=1))
    found = stage.look()
    assert stage.outcome(first) == "wait.tasks"
    assert [(part.node, part.slots) for part in found[second].placements] == [("p-1", (1,))]
