"""What GPUs a cluster document has, as far as it and the catalog say.

Comes in: `Context`. Goes out: models, counts, watts; None where that is not known, and then nothing is concluded from
it. Called by: `checks_queues`, `checks_sums`.
"""

from __future__ import annotations

from orchestrator.model.catalog import InstanceType
from orchestrator.spec.context import Context
from orchestrator.wire.cluster_pools import PoolDocument


def types_of(context: Context, pool: PoolDocument) -> list[InstanceType] | None:
    """The instance types of a bought pool; None if the catalog lacks one of them."""
    names = [name for offering in pool.offerings for name in offering.type]
    known = [context.catalog.instances.get(name) for name in names]
    return [one for one in known if one is not None] if all(known) else None


def models_of_pool(context: Context, pool: PoolDocument) -> set[str] | None:
    """The GPU models that nodes of a pool may have."""
    if pool.gpu is not None:
        return {pool.gpu.model}
    types = types_of(context, pool)
    return None if types is None else {one.gpu_model for one in types}


def models_of_cluster(context: Context) -> set[str] | None:
    """The GPU models of all pools."""
    models: set[str] = set()
    for pool in context.document.pools:
        found = models_of_pool(context, pool)
        if found is None:
            return None
        models |= found
    return models


def gpus_per_node(context: Context, pool: PoolDocument) -> int | None:
    """GPUs of a node of a pool, the most where types differ."""
    if pool.gpu is not None:
        return pool.gpu.count
    types = types_of(context, pool)
    return None if types is None else max((one.gpus for one in types), default=0)


def most_gpus(context: Context, pool: PoolDocument) -> int | None:
    """All GPUs that a pool can have."""
    each = gpus_per_node(context, pool)
    if each is None:
        return None
    count = pool.size.max if pool.size is not None else len(pool.nodes or ())
    return count * each


def gpu_watts(context: Context, pool: PoolDocument) -> int | None:
    """Power limit of one GPU of a listed pool."""
    if pool.gpu is None:
        return None
    if pool.gpu.max_watts is not None:
        return pool.gpu.max_watts
    known = context.catalog.gpus.get(pool.gpu.model)
    return known.max_watts if known else None
