"""What can never run, and what stops everything: reasons that no end of other work takes away.

Comes in: State, a job as asked for. Goes out: a `Reason`, or None. Called by: controller (at submit, so that a job
that can never run is refused there), cycle (what stops the whole pass, limits in words).
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.ledger.limits import scope_words
from orchestrator.ledger.state import State, queue_scope, user_ceilings
from orchestrator.model.capacity import Shape
from orchestrator.model.cluster import Pool, Queue
from orchestrator.model.job import JobSpec
from orchestrator.model.need import Need, lacking, models_of, need_of, pools_for
from orchestrator.model.node import Contact
from orchestrator.model.reasons import Reason, dimension_words, reason

UNKNOWN = 1 << 62  # cores or bytes of a node that has not reported yet: more than any job asks


def stop_reason(state: State) -> Reason | None:
    """Why nothing at all may start now, or None."""
    if state.cluster is None:
        return reason("wait.no-cluster")
    if state.recovering:
        silent = sum(1 for node in state.nodes.values() if node.contact is not Contact.OK)
        return reason("wait.recovering", silent=silent)
    return None


def never(
    state: State, spec: JobSpec, owner: str, shapes: Mapping[str, Shape] | None = None
) -> Reason | None:
    """Why the job can't run however long it waits on the cluster as wanted now; None if it can. `shapes`: of a bought
    pool's nodes, the largest that it may buy."""
    if state.cluster is None:
        return None  # nothing is known yet; it waits with that reason
    queue = state.queue(spec.queue)
    if queue is None:
        known = ", ".join(queue.name for queue in state.cluster.queues)
        return reason("never.queue", queue=spec.queue, known=known)
    most = queue.limits.max_time_limit_s
    if most and spec.time_limit_s > most:
        return reason("never.time-limit", queue=queue.name, max_s=most, asked_s=spec.time_limit_s)
    return _never_capacity(state, spec, shapes or {}) or _never_limit(state, spec, owner, queue)


def _never_capacity(state: State, spec: JobSpec, shapes: Mapping[str, Shape]) -> Reason | None:
    if state.cluster is None:
        return None
    pools = state.cluster.pools
    models = models_of(spec)
    if models and not any(pool.gpu and set(pool.gpu.models()) <= set(models) for pool in pools):
        known = (
            ", ".join(sorted({name for pool in pools if pool.gpu for name in pool.gpu.models()})) or "no GPUs"
        )
        return reason("never.model", models=", ".join(models), known=known)
    if pools and all(lacking(state.cluster, pool, spec) for pool in pools):
        fewest = min((lacking(state.cluster, pool, spec) for pool in pools), key=len)
        return reason("never.storage", needs=", ".join(spec.needs), lacking=", ".join(fewest))
    need = need_of(spec)
    fitting = list(pools_for(state.cluster, spec))
    most = max((_most_units(state, pool, need, shapes.get(pool.name)) for pool in fitting), default=0)
    if most >= need.units:
        return None
    shape = {"gpus": need.gpus, "cores": need.cores, "memory": need.memory}
    if need.spread:
        return reason("never.nodes", nodes=need.units, **shape, most=most)
    return reason("never.tasks", tasks=need.units, **shape, most=most)


def _most_units(state: State, pool: Pool, need: Need, shape: Shape | None) -> int:
    """Units of the gang that the whole pool takes when empty, by the spec and by what its nodes have reported."""
    gpus = pool.gpu.count if pool.gpu else 0
    if shape is not None:
        return pool.most_nodes() * need.units_on(gpus, shape.cores, shape.memory)
    known = state.capacity.pools.get(pool.name)
    shapes = list(known.shapes.items()) if known is not None else []
    shapes.append(((pool.cores, pool.memory), pool.most_nodes() - sum(count for _, count in shapes)))
    total = 0
    for (cores, memory), count in shapes:
        units = _units(gpus, cores, memory, need)
        total += max(count, 0) * (min(units, 1) if need.spread else units)
    return total


def _units(gpus: int, cores: int, memory: int, need: Need) -> int:
    units = need.units
    if need.gpus:
        units = min(units, gpus // need.gpus)
    if need.cores:
        units = min(units, (cores or UNKNOWN) // need.cores)
    if need.memory:
        units = min(units, (memory or UNKNOWN) // need.memory)
    return units


def _never_limit(state: State, spec: JobSpec, owner: str, queue: Queue) -> Reason | None:
    """A ceiling that the job alone would pass."""
    gpus = spec.request.total_gpus()
    levels = [(f"a job in queue {queue.name}", {"gpus": queue.limits.max_gpus_per_job or gpus})]
    levels.append((f"{owner} in queue {queue.name}", user_ceilings(queue)))
    path = state.limits.path(queue_scope(queue.name))
    levels += [(scope_words(scope.name), scope.ceilings) for scope in path]
    for words, ceilings in levels:
        for dimension, need in (("jobs", 1), ("gpus", gpus)):
            ceiling = ceilings.get(dimension)
            if ceiling is not None and need > ceiling:
                what = dimension_words(dimension)
                return reason("never.limit", scope=words, what=what, ceiling=ceiling, need=need)
    return None
