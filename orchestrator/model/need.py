"""What one unit of a gang takes on a node, and which pools have the like at all.

Comes in: a job as asked for, the cluster as wanted. Goes out: its `Need`, the pools for it. Called by: scheduler
(places by them), autoscale (buys by them).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.model.cluster import ClusterSpec, Pool, SiteKind, Storage
from orchestrator.model.job import JobSpec, LaunchKind


class Need(NamedTuple):
    """What one unit of the gang takes on a node: a unit is a node's share (`nodes`) or one task (`tasks`)."""

    units: int
    gpus: int
    cores: int
    memory: int
    spread: bool  # every unit on a node of its own
    tasks: int  # ranks per unit

    def units_on(self, gpus: int, cores: int, memory: int) -> int:
        """How many units so many devices, cores and bytes of one node take: one at most if they are spread."""
        units = 1 if self.spread else self.units
        if self.gpus:
            units = min(units, gpus // self.gpus)
        if self.cores:
            units = min(units, cores // self.cores)
        if self.memory:
            units = min(units, memory // self.memory)
        return max(units, 0)


def need_of(spec: JobSpec) -> Need:
    """A job's need per unit. Work without GPUs takes at least one core a task, so that it can't pile up."""
    request = spec.request
    share = request.per_node if request.nodes else request.per_task
    tasks = request.tasks_per_node if request.nodes else 1
    if request.nodes and spec.launch is not LaunchKind.RANKS:
        tasks = 1
    cores = share.cores or (0 if share.gpus else tasks)
    return Need(request.nodes or request.tasks, share.gpus, cores, share.memory, bool(request.nodes), tasks)


def models_of(spec: JobSpec) -> tuple[str, ...]:
    """The GPU models that a job takes; empty: any."""
    return (spec.request.per_node if spec.request.nodes else spec.request.per_task).gpu_models


def pools_for(cluster: ClusterSpec, spec: JobSpec) -> Iterator[Pool]:
    """The pools that have what the job names at all, in the order of the file."""
    for pool in cluster.pools:
        if _suits(pool, spec) and not lacking(cluster, pool, spec):
            yield pool


def lacking(cluster: ClusterSpec, pool: Pool, spec: JobSpec) -> tuple[str, ...]:
    """The storage that the job needs and the pool's nodes don't mount; what the file does not have, nobody mounts."""
    if not spec.needs:
        return ()
    here = {one.name for one in cluster.storage if _mounted(cluster, one, pool)}
    return tuple(name for name in spec.needs if name not in here)


def _mounted(cluster: ClusterSpec, storage: Storage, pool: Pool) -> bool:
    """Without sites: everywhere, but for what Gangline makes, which stands in AWS alone."""
    if storage.sites:
        return pool.site in storage.sites
    return not storage.made or cluster.site_of(pool).kind is SiteKind.AWS


def _suits(pool: Pool, spec: JobSpec) -> bool:
    """Whether the pool's nodes are of the kind that the job names."""
    need, models = need_of(spec), models_of(spec)
    if pool.gpu is None:
        return not need.gpus and not models
    return not models or all(one in models for one in pool.gpu.models())
