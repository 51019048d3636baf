"""What one unit of a gang takes on a node, and which pools have the like at all.

Comes in: a job as asked for, the cluster as wanted. Goes out: its `Need`, the pools for it. Called by: scheduler
(places by them), autoscale (buys by them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import islice, product
from typing import NamedTuple

from orchestrator.model.cluster import NODE_LEVEL, ClusterSpec, Pool, SiteKind, Storage
from orchestrator.model.job import Gang, JobSpec, LaunchKind, PerNode, Request
from orchestrator.model.mig import MigProfile

# Levels that every site has, whether its fabric names them or not: a node by itself, and the whole site.
SITE_LEVEL = "site"
IMPLIED_LEVELS = (NODE_LEVEL, SITE_LEVEL)
MOST_WAYS = 64  # choices of a pool for each group that a gang is tried in, in the order of the file


def known_levels(cluster: ClusterSpec) -> tuple[str, ...]:
    """The topology levels of a cluster's sites, from the inside out, and those that are everywhere."""
    named = [level for site in cluster.sites for level in site.fabric.levels]
    return tuple(dict.fromkeys([*named, *IMPLIED_LEVELS]))


class Need(NamedTuple):
    """What one unit of the gang takes on a node: a unit is a node's share (`nodes`) or one task (`tasks`).

    `milli` thousandths of one device and `device_bytes` of its memory are as in `PerNode`; `mig`: `gpus` are instances
    of that profile (`devices_of` says how many a GPU is); `exclusive`: the node is nobody else's.
    """

    units: int
    gpus: int
    cores: int
    memory: int
    spread: bool  # every unit on a node of its own
    tasks: int  # ranks per unit
    milli: int = 0  # of one device, which others may share; `gpus` is 0 then
    device_bytes: int = 0  # of a device's memory: kept on one that is shared, there at least on a whole one
    mig: str = ""
    exclusive: bool = False

    @property
    def shares(self) -> bool:
        """Whether a unit takes part of one device."""
        return not self.gpus and bool(self.milli or self.device_bytes)

    def units_on(self, gpus: int, cores: int, memory: int) -> int:
        """How many units so many devices, cores and bytes of one node take: one at most if they are spread."""
        units = 1 if self.spread else self.units
        if self.gpus:
            units = min(units, gpus // self.gpus)
        if self.shares:
            units = min(units, gpus * (1000 // max(self.milli, 1)))
        if self.cores:
            units = min(units, cores // self.cores)
        if self.memory:
            units = min(units, memory // self.memory)
        return max(units, 0)


def gangs_of(spec: JobSpec) -> tuple[JobSpec, ...]:
    """The job as gangs of equal units: itself, or one for each of its groups, in their order. All else here is about
    one of these."""
    groups = spec.request.groups
    return (
        tuple(replace(spec, request=_alone(spec.request, one.gang)) for one in groups) if groups else (spec,)
    )


def _alone(request: Request, gang: Gang) -> Request:
    own = {one.name: getattr(gang, one.name) for one in fields(gang)}
    return replace(request, groups=(), **own)


def need_of(spec: JobSpec) -> Need:
    """A job's need per unit. Work without GPUs takes at least one core a task, so that it can't pile up."""
    request = spec.request
    share = request.per_node if request.nodes else request.per_task
    tasks = request.tasks_per_node if request.nodes else 1
    if request.nodes and spec.launch is not LaunchKind.RANKS:
        tasks = 1
    cores = share.cores or (0 if share.gpus or share.shares else tasks)
    return Need(
        units=request.nodes or request.tasks,
        gpus=share.gpus,
        cores=cores,
        memory=share.memory,
        spread=bool(request.nodes),
        tasks=tasks,
        milli=share.gpu_milli,
        device_bytes=share.gpu_memory,
        mig=share.mig,
        exclusive=request.exclusive,
    )


def profile_in(pool: Pool, mig: str) -> MigProfile | None:
    """The MIG profile of that name, where the pool's GPUs are divided and have it."""
    layout = pool.gpu.layout if pool.gpu is not None and pool.gpu.mig else None
    return layout.find(mig) if layout is not None else None


def devices_of(pool: Pool, need: Need, gpus: int) -> int:
    """What so many GPUs of the pool are for the need: as many devices, or all the instances of its profile."""
    if not need.mig:
        return gpus
    profile = profile_in(pool, need.mig)
    return gpus * len(profile.starts) if profile is not None else 0


def share_of(spec: JobSpec) -> PerNode:
    """What each node of the gang gives, or each task takes."""
    return spec.request.per_node if spec.request.nodes else spec.request.per_task


def models_of(spec: JobSpec) -> tuple[str, ...]:
    """The GPU models that a job takes; empty: any."""
    return share_of(spec).gpu_models


def labels_of(spec: JobSpec) -> tuple[tuple[str, str], ...]:
    """The labels that a pool must have for the job."""
    return share_of(spec).labels


def levels_of(spec: JobSpec) -> tuple[str, ...]:
    """The topology levels that a site must name for the job."""
    wish = spec.topology
    wanted = (wish.required, wish.segment_level if wish.segment_nodes else "")
    return tuple(dict.fromkeys(level for level in wanted if level and level not in IMPLIED_LEVELS))


def pools_for(cluster: ClusterSpec, spec: JobSpec) -> Iterator[Pool]:
    """The pools that have what the job names at all, in the order of the file."""
    for pool in cluster.pools:
        if _suits(pool, spec) and has_levels(cluster, pool, spec) and not lacking(cluster, pool, spec):
            yield pool


def ways_of(sites: Mapping[str, str], pools: Iterable[Iterable[str]]) -> Iterator[tuple[str, ...]]:
    """The choices of a pool for each group of a gang, of those that suit it: all of one site, since the groups talk to
    each other. `sites`: of each pool."""
    near = (way for way in product(*pools) if len(dict.fromkeys(sites[pool] for pool in way)) == 1)
    return islice(near, MOST_WAYS)


def has_levels(cluster: ClusterSpec, pool: Pool, spec: JobSpec) -> bool:
    """Whether the pool's site has the levels that the job names."""
    wanted = levels_of(spec)
    return not wanted or set(wanted) <= set(cluster.site_of(pool).fabric.levels)


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
    if not set(labels_of(spec)) <= set(pool.labels):
        return False
    if pool.gpu is None:
        return not need.gpus and not need.shares and not models
    if (need.gpus or need.shares) and pool.gpu.mig != bool(need.mig):
        return False  # divided GPUs are for instances alone, and instances are nowhere else
    if need.mig and profile_in(pool, need.mig) is None:
        return False
    return not models or all(one in models for one in pool.gpu.models())
