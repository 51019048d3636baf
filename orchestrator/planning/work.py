"""What a plan does to jobs.

Comes in: the steps, the pools' policies, the jobs. Goes out: `WorkEffect`s by job id. Called by: plan.

How long a batch takes nobody knows, so every deadline is counted from now: what is told is the earliest that can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.model.change import PlanStep, StepKind, WorkEffect, WorkFate
from orchestrator.model.cluster import ClusterSpec, Drain, DrainThen, Pool
from orchestrator.model.units import seconds_text
from orchestrator.planning.roster import Roster
from orchestrator.planning.world import Running, Waiting, Workload

SECOND = 1_000_000
WORST_LAST = (WorkFate.DRAINED, WorkFate.BLOCKS, WorkFate.STOPPED)

_ENDS = {
    DrainThen.CHECKPOINT: "is told to checkpoint and starts again later",
    DrainThen.REQUEUE: "is ended and queued again",
    DrainThen.CANCEL: "is cancelled",
}


def effects(
    steps: tuple[PlanStep, ...], workload: Workload, nodes: Roster, wanted: ClusterSpec, now_us: int
) -> tuple[WorkEffect, ...]:
    """Running jobs on drained nodes, and waiting ones for which too little stays ready."""
    drained = {name: step for step in steps if step.kind is StepKind.DRAIN for name in step.nodes}
    if not drained:
        return ()
    found = [effect for job in workload.running for effect in _running(job, drained, nodes, now_us)]
    found += _delayed(workload.waiting, steps, nodes, wanted)
    return tuple(sorted(found, key=lambda effect: effect.job))


# --- running ---------------------------------------------------------------------------------------------------------


def _running(
    job: Running, drained: Mapping[str, PlanStep], nodes: Roster, now_us: int
) -> Iterator[WorkEffect]:
    names = tuple(name for name in job.nodes if name in drained)
    if names:
        told = [_fate(job, name, drained[name], _policy(nodes, name), now_us) for name in names]
        worst = max(told, key=lambda fate: WORST_LAST.index(fate.fate))
        yield WorkEffect(job.job, job.owner, worst.fate, names, worst.until_us, worst.why)


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one job; `until_us` as in WorkEffect."""

    fate: WorkFate
    until_us: int
    why: str


def fate_of(job: Running, names: tuple[str, ...], step: PlanStep, policy: Drain, now_us: int) -> WorkEffect:
    """What a drain of all these nodes by one policy does to a job on them."""
    found = _fate(job, names[0], step, policy, now_us)
    return WorkEffect(job.job, job.owner, found.fate, names, found.until_us, found.why)


def _fate(job: Running, name: str, step: PlanStep, policy: Drain, now_us: int) -> Fate:
    because = f"{name} is drained for {step.why}"
    stopped = stopped_by(job, because, policy, now_us)
    if stopped is not None:
        return stopped
    if job.until_us and job.until_us <= now_us + policy.deadline_s * SECOND:
        return Fate(WorkFate.DRAINED, job.until_us, f"{because}; it ends before the deadline")
    return Fate(WorkFate.BLOCKS, job.until_us, f"{because}; the plan waits until it ends")


def stopped_by(job: Running, because: str, policy: Drain, now_us: int) -> Fate | None:
    """How a drain ends the job; None if it ends before the deadline, or is waited for."""
    deadline_us = now_us + policy.deadline_s * SECOND
    if policy.then is DrainThen.WAIT or (job.until_us and job.until_us <= deadline_us):
        return None
    after = seconds_text(policy.deadline_s)
    return Fate(WorkFate.STOPPED, deadline_us, f"{because}; after {after} it {_ENDS[policy.then]}")


def _policy(nodes: Roster, name: str) -> Drain:
    """A node that leaves is drained as the pool that it was in says."""
    pool = nodes.was(name)
    return pool.update.drain if pool is not None else Drain()


# --- waiting ---------------------------------------------------------------------------------------------------------


def _delayed(
    waiting: tuple[Waiting, ...], steps: tuple[PlanStep, ...], nodes: Roster, wanted: ClusterSpec
) -> Iterator[WorkEffect]:
    """Jobs that would fit into what is ready now, and not into what is left while the plan is carried out."""
    left = _gpus_by_pool(steps, nodes, wanted)
    for job in waiting:
        pools = {name: one for name, one in left.items() if job.pool in ("", name)}
        now = sum(one.ready for one in pools.values())
        least = sum(one.least for one in pools.values())
        if least < job.gpus <= now:
            changed = ", ".join(name for name, one in pools.items() if one.least < one.ready)
            why = f"it needs {job.gpus} GPUs at once; while {changed} is changed, {least} of {now} are ready"
            yield WorkEffect(job.job, job.owner, WorkFate.DELAYED, (), 0, why)


@dataclass(slots=True)
class _Gpus:
    """GPUs of a pool: ready now, and the least that are ready while the plan is carried out."""

    ready: int = 0
    least: int = 0


def _gpus_by_pool(steps: tuple[PlanStep, ...], nodes: Roster, wanted: ClusterSpec) -> dict[str, _Gpus]:
    """A pool loses its largest batch for a while, and what leaves it for ever."""
    pools = {pool.name: pool for pool in (*nodes.old.values(), *wanted.pools)}
    found = {name: _Gpus() for name in pools}
    for name, pool in (nodes.new | nodes.old).items():
        if nodes.ready(name):
            found[pool.name].ready += _gpus(pool)
    for name, one in found.items():
        taken = [step for step in steps if step.kind is StepKind.CORDON and step.pool == name]
        back = [_ready(step, nodes) for step in taken if not step.id.startswith("retire.")]
        gone = sum(_ready(step, nodes) for step in taken if step.id.startswith("retire."))
        one.least = one.ready - (max(back, default=0) + gone) * _gpus(pools[name])
    return found


def _ready(step: PlanStep, nodes: Roster) -> int:
    return sum(1 for name in step.nodes if nodes.ready(name))


def _gpus(pool: Pool) -> int:
    return pool.gpu.count if pool.gpu is not None else 0
