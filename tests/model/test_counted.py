"""What a job counts for at least: whole GPUs, shares, instances, memory alone, nodes of one's own, groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.counted import Has, counted_milli
from orchestrator.model.job import JobSpec, PerNode, Request
from tests.builders import cluster, grouped, job, pool

GIB = 1 << 30
WHOLE = cluster(pool(nodes=4, gpus=8))
DIVIDED = cluster(pool("m", 2, 4, mig=True))
# 1g.10gb is one of eight slices of the one model, and two of the other.
TWO_SIZES = cluster(pool("a", 1, 1, model="A100-SXM4-40GB", mig=True), pool("b", 1, 1, mig=True))
UNLIKE = cluster(pool("large", 2, 8), pool("small", 2, 4))


def shares(milli: int = 0, memory: int = 0, tasks: int = 1) -> JobSpec:
    return replace(job(), request=Request(tasks=tasks, per_task=PerNode(gpu_milli=milli, gpu_memory=memory)))


def alone(spec: JobSpec) -> JobSpec:
    return replace(spec, request=replace(spec.request, exclusive=True))


COUNTED: dict[str, tuple[ClusterSpec | None, JobSpec, int]] = {
    "whole GPUs": (WHOLE, job(nodes=2, gpus=8), 16_000),
    "none": (WHOLE, job(gpus=0, cores=4), 0),
    "shares": (WHOLE, shares(300, tasks=3), 900),
    "a share that also asks for memory": (WHOLE, shares(300, 10 * GIB), 300),
    "instances by their slices": (DIVIDED, job(mig="3g.40gb", gpus=2, tasks=3), 3_000),
    "instances where they count least": (TWO_SIZES, job(mig="1g.10gb", tasks=8), 1_000),
    "instances that no pool has": (WHOLE, job(mig="1g.10gb"), 0),
    "nodes of one's own": (WHOLE, alone(job(nodes=2, gpus=1)), 16_000),
    "nodes of one's own where they are smallest": (UNLIKE, alone(job(nodes=1, gpus=0, cores=1)), 4_000),
    "tasks that fill nodes of their own": (WHOLE, alone(job(tasks=9, gpus=1)), 16_000),
    "instances on nodes of their own": (DIVIDED, alone(job(mig="1g.10gb", tasks=29)), 8_000),
    "groups, each where it counts least": (
        cluster(*WHOLE.pools, *DIVIDED.pools),
        grouped(parts={"a": job(nodes=1, gpus=8), "b": job(mig="1g.10gb", tasks=4), "c": shares(500)}),
        9_000,
    ),
    "groups on nodes of their own": (
        WHOLE,
        alone(grouped(parts={"a": job(nodes=1, gpus=1), "b": job(tasks=1, gpus=0, cores=1)})),
        16_000,
    ),
    "without a cluster what it asks for": (None, alone(job(nodes=2, gpus=1)), 2_000),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counted(name: str) -> None:
    spec, asked, milli = COUNTED[name]
    assert counted_milli(spec, asked) == milli


@pytest.mark.parametrize(
    ("said", "known", "milli"),
    [(0, 0, 2), (80 * GIB, 0, 500), (0, 40 * GIB, 1_000), (80 * GIB, 40 * GIB, 1_000)],
)
def test_shares_by_memory_alone_count_for_their_part_of_the_largest_device(
    said: int, known: int, milli: int
) -> None:
    """As the file says it, or as nodes do; 1 each where neither does."""
    wanted = pool(nodes=2, gpus=1)
    assert wanted.gpu is not None
    spec = cluster(replace(wanted, gpu=replace(wanted.gpu, memory=said)))
    asked = shares(memory=20 * GIB, tasks=2)
    has = Has(1, known)
    assert counted_milli(spec, asked, *([lambda _: has] if known else [])) == milli
