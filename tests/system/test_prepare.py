"""Jobs that a node, or every node, cannot set up: whose fault it is, and what is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster
from tests.system.processes import until
from tests.system.workload import Work, gang, single

pytestmark = pytest.mark.system


def marks(cluster: Cluster) -> dict[str, list[str]]:
    """Marks of all nodes that have any."""
    return {node.name: [mark.why for mark in node.marks] for node in cluster.client.nodes() if node.marks}


@pytest.mark.parametrize("shape", [single(), gang(tasks=1, gpus=1)], ids=["single", "gang"])
def test_a_job_that_fails_everywhere_is_held_and_no_node_is_marked(
    make_cluster: MakeCluster, shape: dict[str, object]
) -> None:
    cluster = make_cluster(nodes=3)
    job = cluster.submit("nowhere", Work(), shape, workdir="/no/such/folder")
    until(lambda: cluster.job(job).state == "held", "the job is held")
    seen = cluster.job(job)
    assert "/no/such/folder: no such folder on this node" in seen.hold
    tried = {fault.partition(":")[0] for fault in seen.faults}
    assert len(tried) == 2 or (
        len(tried) == 3 and seen.nodes == 2
    )  # a gang's nodes may fail both at its second try
    assert marks(cluster) == {}
    assert all(node.open for node in cluster.client.nodes())
    assert not cluster.traces()
    explained = cluster.client.explain(job)
    assert explained.reason is not None
    assert "no such folder" in explained.reason.sentence
    cluster.succeeded(cluster.submit("after", Work(), gang(nodes=3, tasks=1, gpus=8)))
    cluster.client.cancel(job)
    assert cluster.ended(job).state == "cancelled"
    cluster.finish()


@pytest.mark.parametrize("shape", [single(), gang(tasks=1, gpus=1)], ids=["single", "gang"])
def test_a_job_that_fails_on_one_node_runs_on_others(
    make_cluster: MakeCluster, tmp_path: Path, shape: dict[str, object]
) -> None:
    """Its output goes to a folder for each node, and on n1 a file stands in the way."""
    cluster = make_cluster(nodes=3)
    output = tmp_path / "out"
    output.mkdir()
    (output / "n1").write_text("a file")
    job = cluster.submit("somewhere", Work(), shape, output=f"{output}/%N/%j-%t.out")
    (ended,) = cluster.succeeded(job)
    assert "n1" not in ended.node_names
    assert [past.cause for past in ended.past] == ["prepare_failed", "completed"]
    found = marks(cluster)
    assert list(found) == ["n1"]
    assert f"job {job}: {output}/n1" in found["n1"][0]
    for rank in range(ended.ranks):
        (node,) = [
            placement.node
            for placement in ended.past[-1].placements
            if placement.first_rank <= rank < placement.first_rank + placement.tasks
        ]
        assert (output / node / f"{job}-{rank}.out").read_text() == cluster.work[job].output(job, 2, rank)
        assert cluster.client.logs(job, rank).data.decode() == cluster.work[job].output(job, 2, rank)
    cluster.client.uncordon("n1")
    cluster.succeeded(cluster.submit("after", Work(), gang(nodes=3, tasks=1, gpus=8)))
    cluster.finish()
