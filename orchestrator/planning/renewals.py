"""Bought nodes that a plan's changes renew: the controller closes them by itself once the stack is as the file says.

Comes in: a plan, the wanted spec, which bought nodes there are, the work. Goes out: the same plan, its changes with the
nodes that they reach, and the jobs that a drain would end. Called by: cli changing.

Nothing here decides: `autoscale.renew` does, later, by what the stack says that a node means. A change of the file to
what the account had meant already renews nothing, so that what is told is the most that can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from orchestrator.model.change import Change, ChangeSet, Source, UpdateClass, WorkEffect, WorkFate
from orchestrator.model.cluster import ClusterSpec, Pool
from orchestrator.planning.work import stopped_by
from orchestrator.planning.world import NodeNow, Workload

Bought = dict[str, tuple[str, ...]]  # nodes by pool


def with_renewals(
    plan: ChangeSet, wanted: ClusterSpec, nodes: tuple[NodeNow, ...], workload: Workload, now_us: int
) -> ChangeSet:
    """The plan with what happens to nodes of pools that have a size; others are drained by steps of its own."""
    bought = {
        pool.name: tuple(node.name for node in nodes if node.pool == pool.name)
        for pool in wanted.pools
        if pool.size is not None
    }
    if not any(bought.values()):
        return plan
    changes = tuple(_reaching(change, wanted, bought) for change in plan.changes)
    work = sorted((*plan.work, *_work(changes, wanted, bought, workload, now_us)), key=lambda one: one.job)
    return replace(plan, changes=changes, work=tuple(work))


def _reaching(change: Change, wanted: ClusterSpec, bought: Bought) -> Change:
    names = [name for pool in _renewed_by(change, wanted) for name in bought.get(pool.name, ())]
    return replace(change, nodes=(*change.nodes, *names)) if names else change


def _renewed_by(change: Change, wanted: ClusterSpec) -> Iterator[Pool]:
    """The pools whose nodes are bought anew for a change of the file."""
    if change.cls is not UpdateClass.REPLACE or change.source is not Source.SPEC:
        return
    for pool in wanted.pools:
        if change.path.startswith((f"pools[{pool.name}].", f"sites[{pool.site}].")):
            yield pool


def _work(
    changes: tuple[Change, ...], wanted: ClusterSpec, bought: Bought, workload: Workload, now_us: int
) -> Iterator[WorkEffect]:
    """Jobs that would outlive the drain of their nodes where its policy does not wait. All others end as they would
    have."""
    for pool in wanted.pools:
        paths = [one.path for one in changes if pool in _renewed_by(one, wanted)]
        for job in workload.running if paths else ():
            names = tuple(name for name in job.nodes if name in bought.get(pool.name, ()))
            end = (
                stopped_by(job, f"{names[0]} is renewed for {paths[0]}", pool.update.drain, now_us)
                if names
                else None
            )
            if end is not None:
                yield WorkEffect(job.job, job.owner, WorkFate.STOPPED, names, end.until_us, end.why)
