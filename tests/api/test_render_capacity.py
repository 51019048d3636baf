"""What GPUs and queues say of shares, of what nobody could use, and of what is borrowed.

Comes in: small states, as the view has them. Goes out: proof of the numbers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.api import render_cluster, render_queues, render_topology
from orchestrator.api.asked import Asked
from orchestrator.controller.reporter import Told
from orchestrator.controller.view import View, job_view, node_view, power_view
from orchestrator.model.cluster import ClusterSpec, PowerDomain, Queue, Redundancy, Share
from orchestrator.model.job import JobSpec, PerNode, Request
from orchestrator.wire.api_cluster import PowerUse
from tests.builders import ALICE, BOB, Fold, cluster, job, pool, queue
from tests.scheduler.test_cycle import enact, run
from tests.scheduler.test_power import powered


def seen(fold: Fold) -> View:
    """The view of a state after its next pass, with that pass's starts."""
    enact(fold, run(fold.state)[0])
    waits = run(fold.state)[1].waits
    return View(
        cluster=fold.state.cluster,
        jobs={one.id: job_view(fold.state, one) for one in fold.state.jobs.values()},
        nodes={one.name: node_view(fold.state, one) for one in fold.state.nodes.values()},
        reasons=Told(waits),
        power=power_view(fold.state),
    )


def shared(milli: int, tasks: int = 1, **rest: object) -> JobSpec:
    each = PerNode(gpu_milli=milli)
    return replace(job(**rest), request=Request(tasks=tasks, per_task=each))  # type: ignore[arg-type]


def test_the_largest_share_of_a_device_is_told() -> None:
    fold = Fold(cluster(pool(nodes=1, gpus=2)))
    for milli in (700, 600):
        fold.submit(shared(milli))

    (found,) = render_cluster.gpus(seen(fold))

    assert (found.free, found.largest_milli) == (0, 400)


def test_of_gpus_in_mig_mode_instances_can_be_asked_for_and_nothing_else() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=1, mig=True)))
    fold.submit(job(mig="4g.40gb"))
    enact(fold, run(fold.state)[0])

    (found,) = render_cluster.gpus(seen(fold))

    assert (found.free, found.allocated, found.shapes, found.largest_milli) == (1, 1, [], 0)
    assert {one.profile: one.free for one in found.instances} == {
        "1g.10gb": 10,
        "1g.20gb": 6,
        "2g.20gb": 4,
        "3g.40gb": 3,
        "4g.40gb": 1,
        "7g.80gb": 1,
    }


@pytest.mark.parametrize(
    ("waits", "stranded"),
    [
        ([], 0),
        ([job(nodes=2, gpus=4)], 3),  # 3 left on one of two nodes, 4 on the other
        ([job(nodes=2, gpus=3)], 1),
        ([job(nodes=2, gpus=4), job(nodes=2, gpus=3)], 0),
        ([job(nodes=2, gpus=2, cores=60)], 5),  # cores are left for it on the empty node alone
        ([shared(500, tasks=99)], 0),
    ],
)
def test_what_no_waiting_job_could_have_is_stranded(waits: list[JobSpec], stranded: int) -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4, cores=64)))
    fold.submit(job(gpus=1, cores=32))
    enact(fold, run(fold.state)[0])
    for asked in waits:
        number = fold.submit(asked)
        assert number > 1
    view = seen_without_pass(fold)

    (found,) = render_cluster.gpus(view, Asked(view))

    assert (found.free, found.stranded) == (7, stranded)


def seen_without_pass(fold: Fold) -> View:
    return View(
        cluster=fold.state.cluster,
        jobs={one.id: job_view(fold.state, one) for one in fold.state.jobs.values()},
        nodes={one.name: node_view(fold.state, one) for one in fold.state.nodes.values()},
    )


def tree() -> ClusterSpec:
    return cluster(
        pool("a", nodes=2, gpus=4),
        pool("b", nodes=1, gpus=4, model="B"),
        queues=(
            queue(),
            Queue("lab", guarantee=(Share(3, pool="a"),), weight=2),
            Queue("lab-1", parent="lab"),
            Queue("other", guarantee=(Share(2, gpu_model="B"),)),
        ),
    )


def test_what_is_held_beyond_a_guarantee_is_borrowed_by_who_has_it() -> None:
    fold = Fold(tree())
    fold.submit(job(gpus=2, models=("H100-SXM5-80GB",), queue="lab"))
    fold.submit(job(gpus=2, models=("H100-SXM5-80GB",), queue="lab-1"), BOB)
    fold.submit(job(gpus=3, models=("B",), queue="other"))
    fold.submit(shared(250, models=("B",)), ALICE)

    found = {one.name: one for one in render_queues.queues(seen(fold))}

    assert {name: (one.used_milli, one.borrowed_milli, one.share_milli) for name, one in found.items()} == {
        "default": (250, 250, 250),
        "lab": (2000, 1000, 2000),
        "lab-1": (2000, 0, 2000),
        "other": (3000, 1000, 3000),
    }


def test_why_most_wait_is_told_with_how_many() -> None:
    fold = Fold(cluster(pool(nodes=1, gpus=4), queues=(queue(max_jobs_per_user=1),)))
    for owner, count in ((ALICE, 1), (BOB, 4)):
        for _ in range(count):
            fold.submit(job(gpus=4), owner)

    (found,) = render_queues.queues(seen(fold))

    assert found.reason is not None
    assert (found.waiting_jobs, found.reason.code, found.reason_jobs) == (4, "wait.tasks", 4)


def test_a_cluster_without_a_fabric_has_its_sites() -> None:
    (found,) = render_topology.topology(seen(Fold(cluster(pool(nodes=2), pool("c", nodes=1, gpus=4)))))

    assert (found.site, found.level, found.domain, found.node_names) == (
        "here",
        "site",
        "here",
        "c-1,p-[1-2]",
    )
    assert [(one.nodes, one.gpus, one.pool) for one in found.gangs] == [(2, 8, "p"), (1, 4, "c")]
    assert render_topology.topology(View()) == []


def fed(**limits: int) -> ClusterSpec:
    """Two nodes: one in a rack with two feeds, one on the hall itself."""
    return powered(
        PowerDomain("hall"),
        PowerDomain("a", "hall", limits.get("a", 0), unmanaged_watts=100),
        PowerDomain("b", "hall", limits.get("b", 0), derate_milli=800),
        PowerDomain("rack", nodes=("p-1",), fed_by=("a", "b"), redundancy=Redundancy.TWO_N),
    )


def test_power_domains_are_told_where_one_is_limited() -> None:
    fold = Fold(fed(a=500, b=1000))
    fold.submit(job(nodes=2, gpus=3))

    found = [one for one in render_topology.topology(seen(fold)) if one.power is not None]

    assert [(one.level, one.domain, one.node_names, one.free_gpus, one.gangs) for one in found] == [
        ("power", "hall", "p-[1-2]", 2, []),
        ("power", "a", "p-1", 1, []),
        ("power", "b", "p-1", 1, []),
        ("power", "rack", "p-1", 1, []),
    ]
    assert [one.power for one in found] == [
        PowerUse(used_watts=600, limit_watts=0, parent="", fed_by=[], redundancy="N"),
        PowerUse(used_watts=300, limit_watts=400, parent="hall", fed_by=[], redundancy="N"),
        PowerUse(used_watts=300, limit_watts=800, parent="hall", fed_by=[], redundancy="N"),
        PowerUse(used_watts=300, limit_watts=0, parent="", fed_by=["a", "b"], redundancy="2N"),
    ]


def test_a_queue_has_the_watts_that_its_gpus_may_draw() -> None:
    fold = Fold(fed(a=500))
    fold.submit(job(gpus=2))
    fold.submit(shared(300))

    assert [one.used_watts for one in render_queues.queues(seen(fold))] == [230]


def test_without_limits_nothing_is_said_of_watts() -> None:
    view = seen(Fold(fed()))

    assert [one.power for one in render_topology.topology(view)] == [None]
    assert [one.used_watts for one in render_queues.queues(view)] == [None]
