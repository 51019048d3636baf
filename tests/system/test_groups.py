"""A gang of two unlike groups: what its processes are told, a command for each group, and one end for all."""

from __future__ import annotations

import pytest

from tests.system.harness import Cluster
from tests.system.workload import job_document

pytestmark = pytest.mark.system

TELL = (
    'echo "$GANGLINE_GROUP $GANGLINE_GROUP_RANK/$GANGLINE_GROUP_SIZE $GANGLINE_RANK/$GANGLINE_WORLD_SIZE'
    ' $GANGLINE_GROUP_NODES $GANGLINE_GROUPS"'
)


def groups(**workers: object) -> list[dict[str, object]]:
    """Two workers that have a node to themselves, and two loaders, a core each, on another node."""
    return [
        {"name": "workers", "nodes": 1, "tasks_per_node": 2, "per_node": {"gpus": 8}, **workers},
        {"name": "loaders", "tasks": 2, "per_task": {"cores": 1}},
    ]


def test_each_process_knows_its_group_and_its_rank_in_it(cluster: Cluster) -> None:
    document = job_document("rl", groups=groups(command=f"{TELL}; echo I train"), command=TELL)
    job = cluster.ended(cluster.submit_document(document))
    assert (job.state, job.ranks) == ("succeeded", 4)
    (past,) = job.past
    parts = [(part.group, part.first_rank, part.tasks) for part in past.placements]
    assert parts == [("workers", 0, 2), ("loaders", 2, 2)]
    one, other = (part.node for part in past.placements)
    assert one != other
    told = [cluster.client.logs(job.id, rank).data.decode().splitlines() for rank in range(4)]
    sizes = "workers=2,loaders=2"
    assert told == [
        [f"workers 0/2 0/4 {one} {sizes}", "I train"],
        [f"workers 1/2 1/4 {one} {sizes}", "I train"],
        [f"loaders 0/2 2/4 {other} {sizes}"],
        [f"loaders 1/2 3/4 {other} {sizes}"],
    ]


def test_the_first_death_in_one_group_ends_the_other_too(cluster: Cluster) -> None:
    document = job_document("rl", groups=groups(command="sleep 600"), command="exit 7")
    job = cluster.ended(cluster.submit_document(document))
    assert (job.state, job.exit_code) == ("failed", 7)
    assert job.past[0].first_failed is not None
    assert job.past[0].first_failed.rank in (2, 3)
    cluster.finish()
