"""Queues as the API shows them: what they may have, what they hold and borrow, and why most of them wait.

Comes in: the published view. Goes out: models of `wire.api_cluster`. Called by: the route of queues.

Jobs are counted where they stand; what is held against guarantee and weight counts with the queues below, as it does
for the scheduler. Shares of GPUs count in thousandths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from orchestrator.api import render
from orchestrator.api.counted import Counted
from orchestrator.controller.view import JobView, PowerView, View
from orchestrator.ledger.capacity import WHOLE
from orchestrator.ledger.hours import HOUR
from orchestrator.ledger.state import ClassKey
from orchestrator.model.attempt import JobState, PartState
from orchestrator.model.cluster import ClusterSpec, Share
from orchestrator.model.cluster import Queue as QueueSpec
from orchestrator.model.reasons import Reason
from orchestrator.wire import api_cluster as wire
from orchestrator.wire.api import time_of

MOST_JOBS = 1000  # of a queue that are asked why they wait: those that were submitted first
MICRO = 1_000_000
Held = Counter[str]  # pool -> milli-GPU


def queues(view: View) -> list[wire.Queue]:
    """The queues of the wanted cluster by name, and those that only jobs are left of."""
    specs = {queue.name: queue for queue in view.cluster.queues} if view.cluster is not None else {}
    jobs: dict[str, list[JobView]] = {name: [] for name in specs}
    for one in list(view.jobs.values()):
        jobs.setdefault(one.spec.queue, []).append(one)
    pool_of = {name: node.pool for name, node in dict(view.nodes).items()}
    own = {name: _held(mine, pool_of) for name, mine in jobs.items()}
    return [
        _queue(view, specs.get(name) or QueueSpec(name), mine, own[name], _below(name, specs, own))
        for name, mine in sorted(jobs.items())
    ]


def _held(jobs: Iterable[JobView], pool_of: Mapping[str, str]) -> Held:
    """What the attempts of these jobs hold still."""
    found: Held = Counter()
    for one in jobs:
        for part in one.attempt.parts if one.attempt is not None else ():
            if part.state is not PartState.ENDED:
                found[pool_of.get(part.node, "")] += sum(part.milli) or len(part.slots) * WHOLE
    return found


def _below(name: str, specs: Mapping[str, QueueSpec], own: Mapping[str, Held]) -> Held:
    """What a queue and all below it hold."""
    found: Held = Counter(own[name])
    for child in specs.values():
        if child.parent == name and child.name != name:
            found.update(_below(child.name, specs, own))
    return found


def _queue(view: View, spec: QueueSpec, jobs: list[JobView], own: Held, held: Held) -> wire.Queue:
    waiting = [one for one in jobs if one.state is JobState.WAITING]
    why, count = _most_common(view, waiting)
    paid, most = view.dollars.get(spec.name, (None, 0))
    return wire.Queue(
        name=spec.name,
        parent=spec.parent,
        weight=spec.weight,
        guarantee=[_share(share) for share in spec.guarantee],
        borrow_limit=[_share(share) for share in spec.borrow_limit],
        lending_limit=[_share(share) for share in spec.lending_limit],
        limits=_limits(spec),
        running_jobs=sum(1 for one in jobs if one.attempt is not None),
        used_gpus=sum(map(held_gpus, jobs)),
        used_milli=sum(own.values()),
        borrowed_milli=_borrowed(view.cluster, spec, held),
        used_watts=_watts(view.power, own),
        share_milli=sum(held.values()) // max(spec.weight, 1),
        waiting_jobs=len(waiting),
        waiting_gpus=sum(one.spec.request.total_gpus() for one in waiting),
        waiting_milli=Counted(view).of_all(waiting),
        held_jobs=sum(1 for one in jobs if one.state is JobState.HELD),
        usd_per_hour=paid / MICRO if paid is not None else None,
        budget_usd_per_hour=most / MICRO if most else None,
        gpu_hours=view.hours[spec.name] / HOUR if spec.name in view.hours else None,
        month_ends_at=time_of(view.month_ends_us),
        reason=render.reason(why),
        reason_jobs=count,
    )


def _watts(power: PowerView | None, own: Held) -> int | None:
    """What the held GPUs may draw, rounded up."""
    if power is None:
        return None
    return sum(-(-milli * power.most.get(pool, 0) // WHOLE) for pool, milli in own.items())


def _limits(spec: QueueSpec) -> wire.QueueLimits:
    limits = spec.limits
    return wire.QueueLimits(
        default_time_limit_s=limits.default_time_limit_s,
        max_time_limit_s=limits.max_time_limit_s,
        max_running_jobs=limits.max_running_jobs,
        max_waiting_jobs=limits.max_waiting_jobs,
        max_jobs_per_user=limits.max_jobs_per_user,
        max_gpus_per_user=limits.max_gpus_per_user,
        max_gpus_per_job=limits.max_gpus_per_job,
        max_gpu_hours_per_month=limits.max_gpu_hours_per_month,
    )


def _borrowed(cluster: ClusterSpec | None, spec: QueueSpec, held: Held) -> int:
    """What is held beyond the guarantee, pool by pool; pools of a model that is guaranteed count together. 0 for a
    queue whose guarantee is that of one above it: the one above borrows."""
    if not spec.guarantee and _guaranteed_above(cluster, spec):
        return 0
    left = {share.pool: share.gpus * WHOLE for share in spec.guarantee if share.pool}
    of_models = {share.gpu_model: share.gpus * WHOLE for share in spec.guarantee if share.gpu_model}
    pools = {pool.name: pool for pool in cluster.pools} if cluster is not None else {}
    over = 0
    for pool, milli in sorted(held.items()):
        more = max(0, milli - left.get(pool, 0))
        gpu = pools[pool].gpu if pool in pools else None
        covered = min(more, of_models.get(gpu.model, 0)) if gpu is not None else 0
        if gpu is not None and covered:
            of_models[gpu.model] -= covered
        over += more - covered
    return over


def _guaranteed_above(cluster: ClusterSpec | None, spec: QueueSpec) -> bool:
    specs = {queue.name: queue for queue in cluster.queues} if cluster is not None else {}
    above = specs.get(spec.parent)
    while above is not None:
        if above.guarantee:
            return True
        above = specs.get(above.parent)
    return False


def _most_common(view: View, waiting: list[JobView]) -> tuple[Reason | None, int]:
    """The code for which most of them wait, as the largest class among those is told it, and how many wait for it."""
    classes: Counter[tuple[ClassKey, bool]] = Counter()
    first: dict[tuple[ClassKey, bool], JobView] = {}
    for one in waiting[:MOST_JOBS]:
        key = (one.class_key, one.blocked)
        classes[key] += 1
        first.setdefault(key, one)
    codes: Counter[str] = Counter()
    told: dict[str, Reason] = {}
    for key, count in classes.most_common():
        why = view.reason_of(first[key])
        codes[why.code] += count
        told.setdefault(why.code, why)
    if not codes:
        return None, 0
    code, count = codes.most_common(1)[0]
    return told[code], count


def _share(share: Share) -> wire.QueueShare:
    return wire.QueueShare(pool=share.pool, gpu_model=share.gpu_model, gpus=share.gpus)


def held_gpus(one: JobView) -> int:
    """Devices of which a job's attempt still holds anything."""
    parts = one.attempt.parts if one.attempt is not None else ()
    return sum(len(part.slots) for part in parts if part.state is not PartState.ENDED)
