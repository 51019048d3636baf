"""What rows show of GPUs: instances, whole nodes and memory alone count as they do for limits."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.api.counted import Counted
from orchestrator.controller.view import NodeView, View
from orchestrator.model.job import PerNode, Request
from orchestrator.model.node import Contact, Device, NodeFacts
from orchestrator.wire import api as wire
from orchestrator.wire import api_cluster
from tests.api.served import Served, document
from tests.builders import GPU, cluster, job, pool, queue

GIB = 1 << 30


def test_jobs_queues_and_explain_count_alike(empty: Served) -> None:
    pools = pool("m", nodes=1, gpus=1, mig=True), pool("p", nodes=1, gpus=4)
    empty.apply(cluster(*pools, queues=(queue(max_running_jobs=1),)))
    empty.submit(document(tasks=1, per_task={"cores": 1}))
    empty.beat()
    ids = [
        empty.submit(document(nodes=1, per_node={"gpus": 1}, exclusive=True)),
        empty.submit(document(tasks=2, per_task={"mig": "3g.40gb"})),
        empty.submit(document(tasks=1, per_task={"gpu_share": 0.25})),
    ]
    rows = wire.JobList.model_validate_json(empty.get("/jobs?state=waiting").body).items
    assert [(one.gpus, one.gpu_milli) for one in reversed(rows)] == [(1, 4_000), (0, 1_000), (0, 250)]
    (found,) = api_cluster.QueueList.model_validate_json(empty.get("/queues").body).items
    assert (found.waiting_gpus, found.waiting_milli) == (1, 5_250)
    last = wire.Explanation.model_validate_json(empty.get(f"/jobs/{ids[2]}/explain").body)
    assert (last.place, last.ahead_gpus, last.ahead_milli) == (3, 5, 5_000)


def test_memory_alone_counts_on_the_largest_device_that_nodes_have_told_of() -> None:
    asked = replace(job(), request=Request(tasks=2, per_task=PerNode(gpu_memory=20 * GIB)))
    view = View(cluster=cluster(pool(nodes=2, gpus=1), pool("q", 1, 0)))
    assert Counted(view).milli(asked) == 2
    for name, size in (("p-1", 40), ("p-2", 80)):
        facts = NodeFacts("boot-1", 8, GIB, (Device(0, GPU, size * GIB),))
        view.nodes[name] = NodeView(name, "p", Contact.OK, 0, True, (), facts, "")
    view.nodes["q-1"] = NodeView("q-1", "q", Contact.NEVER, 0, False, (), None, "")
    assert Counted(view).milli(asked) == 500
