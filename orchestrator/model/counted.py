"""What a job counts for in limits: one count for rows of jobs, for what stands before a job, and for refusals.

Comes in: the cluster as wanted, a job, what is known of nodes beside the file. Goes out: thousandths of GPUs. Called
by: scheduler/refuse, controller/explain, api.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from orchestrator.model.cluster import ClusterSpec, Pool
from orchestrator.model.job import JobSpec
from orchestrator.model.need import Need, devices_of, gangs_of, need_of, pools_for, profile_in

WHOLE = 1000  # thousandths of a GPU
ANY = 1 << 62  # more cores and bytes than any job asks for


class Has(NamedTuple):
    """What a pool's nodes have: `gpus` of a node at least; `memory` bytes of a device at most, 0: not known."""

    gpus: int
    memory: int


def by_the_file(pool: Pool) -> Has:
    """What the file says of its nodes."""
    return Has(pool.gpu.count, pool.gpu.memory) if pool.gpu is not None else Has(0, 0)


def counted_milli(
    cluster: ClusterSpec | None, spec: JobSpec, has: Callable[[Pool], Has] = by_the_file
) -> int:
    """Thousandths of GPUs that limits count of the job at least, wherever it goes; of groups, of all of them.

    Whole GPUs count 1,000 each, shares what they ask for. The rest hangs on the pool, and the pool of those that suit
    the job where it counts for least is taken: MIG instances count for their part of the memory slices; shares by
    memory alone for their part of the pool's largest device, or, where nobody knows that, for 1; jobs with `exclusive`
    for all GPUs of as many nodes as they take at least. Where no pool suits, and without a cluster, what the job asks
    for counts: 0 of all that hangs on the pool.
    """
    if not hangs_on_pool(spec):
        return spec.request.total_milli()
    gangs = gangs_of(spec)
    if len(gangs) > 1:
        return sum(counted_milli(cluster, gang, has) for gang in gangs)
    pools = pools_for(cluster, gangs[0]) if cluster is not None else ()
    found = (counted_in(pool, gangs[0], has) for pool in pools)
    return min(found, default=spec.request.total_milli())


def counted_in(pool: Pool, gang: JobSpec, has: Callable[[Pool], Has] = by_the_file) -> int:
    """The same in one pool that suits it, for a gang of equal units."""
    return _in_pool(pool, need_of(gang), has(pool), gang.request.total_milli())


def hangs_on_pool(spec: JobSpec) -> bool:
    """Whether what it counts for hangs on the pool; else it is what it asks for."""
    request = spec.request
    gangs = [one.gang for one in request.groups] or [request]
    shares = [one.per_node if one.nodes else one.per_task for one in gangs]
    return request.exclusive or any(one.mig or (one.shares and not one.gpu_milli) for one in shares)


def _in_pool(pool: Pool, need: Need, has: Has, asked: int) -> int:
    if need.exclusive:
        return max(_nodes(pool, need) * has.gpus * WHOLE, asked)
    profile, gpu = profile_in(pool, need.mig) if need.mig else None, pool.gpu
    if profile is not None and gpu is not None and gpu.layout is not None:
        return need.units * need.gpus * gpu.layout.milli(profile)
    if need.shares and not need.milli:
        part = need.device_bytes * WHOLE // has.memory if has.memory else 0
        return need.units * max(part, 1)
    return asked


def _nodes(pool: Pool, need: Need) -> int:
    """As few nodes as the gang takes, whatever cores and memory they have."""
    gpus = devices_of(pool, need, pool.gpu.count) if pool.gpu is not None else 0
    return need.units if need.spread else -(-need.units // max(need.units_on(gpus, ANY, ANY), 1))
