"""Random clusters with divided GPUs beside whole ones, and jobs that ask for either.

Comes in: a source of dice. Goes out: what a `Story` is made of. Called by: test_divided, and `make fuzz`.
"""

from __future__ import annotations

import random
from dataclasses import replace

from orchestrator import catalog
from orchestrator.model.cluster import ClusterSpec, Pool
from orchestrator.model.job import JobSpec, PerNode
from orchestrator.model.mig import MigLayout
from tests.scheduler import fuzz

# 1g.10gb is one slice of the one, and two of the other; the third has four slices.
MODELS = ("H100-SXM5-80GB", "A100-SXM4-40GB", "A30-PCIE-24GB")


def a_divided_cluster(dice: random.Random) -> ClusterSpec:
    """As `fuzz.a_cluster`, with the GPUs of some pools divided."""
    return _divided(dice, fuzz.a_cluster(dice))


def small_and_divided(dice: random.Random) -> ClusterSpec:
    """The same with at most six nodes of at most four devices each."""
    return _divided(dice, fuzz.small(dice))


def _divided(dice: random.Random, spec: ClusterSpec) -> ClusterSpec:
    layouts = [gpu.mig for name, gpu in catalog.load().gpus.items() if name in MODELS]
    pools = (_pool(dice, one, dice.choice(layouts)) for one in spec.pools)
    return replace(spec, pools=tuple(pools))


def _pool(dice: random.Random, one: Pool, layout: MigLayout | None) -> Pool:
    if one.gpu is None or dice.random() < 0.3:
        return one
    return replace(one, gpu=replace(one.gpu, mig=True, layout=layout))


def a_job_of_any(dice: random.Random, spec: ClusterSpec) -> JobSpec:
    """A job as of `fuzz`; where there are divided GPUs most ask for instances instead of what they asked for."""
    found = fuzz.a_job(dice, spec)
    layouts = [pool.gpu.layout for pool in spec.pools if pool.gpu is not None and pool.gpu.layout is not None]
    if not layouts or dice.random() < 0.3:
        return found
    profile, count = dice.choice(dice.choice(layouts).names()), dice.choice((1, 1, 1, 2, 3))
    request = found.request
    return replace(
        found,
        request=replace(
            request,
            per_node=_instances(request.per_node, profile, count) if request.nodes else request.per_node,
            per_task=_instances(request.per_task, profile, count) if request.tasks else request.per_task,
        ),
    )


def _instances(share: PerNode, profile: str, count: int) -> PerNode:
    return replace(share, gpus=count, gpu_milli=0, gpu_memory=0, mig=profile)


def jobs_or_groups_of_any(dice: random.Random, spec: ClusterSpec) -> JobSpec:
    """Half of them are gangs of two or three groups: of instances, of whole GPUs, of shares, of none."""
    first = a_job_of_any(dice, spec)
    if dice.random() < 0.5:
        return first
    others = [a_job_of_any(dice, spec) for _ in range(dice.choice((1, 1, 2)))]
    return fuzz.as_gang(first, others)
