"""Names of scopes of the limit tree, what is counted in them, and the ceilings that the file gives them.

Comes in: queues, people, pools. Goes out: names and ceilings. Called by: state, lending, power, spending,
scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.ledger.capacity import WHOLE
from orchestrator.model.cluster import ClusterSpec, Pool, Queue, Share

ROOT = "cluster"  # the top scope of the limit tree


def queue_scope(name: str) -> str:
    """The scope of a queue; the root for no queue."""
    return f"queue={name}" if name else ROOT


def job_scope(queue: str, person: str, array: int = 0) -> str:
    """The scope of one person in a queue, or of a throttled array below it."""
    name = f"{queue_scope(queue)}/user={person}"
    return f"{name}/array={array}" if array else name


def is_array(scope: str) -> bool:
    """Whether that is the name of an array's scope."""
    return "/array=" in scope


def power_scope(site: str, domain: str) -> str:
    """The scope of a power domain; it has no other above it, since a node may be fed by several."""
    return f"power={site}/{domain}"


def budget_scope(name: str) -> str:
    """The scope of a budget of a site, a pool or the whole cluster; those of queues are the queues' own."""
    return f"budget={name}"


def scope_queue(scope: str) -> str:
    """The scope of the queue that a person's or an array's is in; any other is its own."""
    return scope.partition("/user=")[0]


def array_ceilings(at_most: int) -> dict[str, int]:
    """Ceilings of an array: so many of its tasks at a time."""
    return {"jobs": at_most} if at_most else {}


def queue_ceilings(queue: Queue) -> dict[str, int]:
    """Ceilings of a queue per dimension, from its limits and from guarantee + borrowing limit per pool."""
    ceilings: dict[str, int] = {}
    if queue.limits.max_running_jobs:
        ceilings["jobs"] = queue.limits.max_running_jobs
    owned = {share_dimension(share): share.gpus for share in queue.guarantee}
    for share in queue.borrow_limit:
        dimension = share_dimension(share)
        ceilings[dimension] = (share.gpus + owned.get(dimension, 0)) * WHOLE
    return ceilings


def user_ceilings(queue: Queue) -> dict[str, int]:
    """Ceilings of one person in a queue."""
    ceilings: dict[str, int] = {}
    if queue.limits.max_jobs_per_user:
        ceilings["jobs"] = queue.limits.max_jobs_per_user
    if queue.limits.max_gpus_per_user:
        ceilings["gpus"] = queue.limits.max_gpus_per_user * WHOLE
    return ceilings


def share_dimension(share: Share) -> str:
    """The dimension that a guarantee or a borrowing limit is counted in."""
    return f"gpus@{share.pool}" if share.pool else f"gpus~{share.gpu_model}"


def models_counted(cluster: ClusterSpec | None) -> Iterator[tuple[Pool, str]]:
    """Each pool, and its model if some queue counts by it; a pool of several models counts for none."""
    queues = cluster.queues if cluster is not None else ()
    named = [share.gpu_model for queue in queues for share in (*queue.guarantee, *queue.borrow_limit)]
    for pool in cluster.pools if cluster is not None else ():
        models = pool.gpu.models() if pool.gpu is not None else ()
        yield pool, models[0] if len(models) == 1 and models[0] in named else ""


def dimensions_of(pool: str, model: str) -> tuple[str, ...]:
    """What GPUs of a pool are counted in."""
    return ("gpus", f"gpus@{pool}", f"gpus~{model}") if model else ("gpus", f"gpus@{pool}")
