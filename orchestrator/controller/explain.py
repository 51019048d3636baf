"""Why a job waits, rendered on demand: the reason of its class with its own place, blockers and history.

Comes in: State and the view's reasons, a job id. Goes out: `Explanation`. Called by: api, through a `Query`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from orchestrator.controller.reporter import Told
from orchestrator.controller.view import dependency_reason
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import State, place_of
from orchestrator.model.attempt import JobState, PartState
from orchestrator.model.errors import NotFound
from orchestrator.model.node import Contact
from orchestrator.model.reasons import Reason, reason
from orchestrator.scheduler import refuse

MOST_BLOCKERS = 10


@dataclass(frozen=True, slots=True)
class Blocker:
    """A job that holds devices where this one could run. `ends_us`: its time limit, 0 if it has none; `label`: `1234_7`
    for a task of an array."""

    job: int
    owner: str
    gpus: int
    ends_us: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """`place` counts from 1 within its queue (0: not waiting); `ahead_milli` is what those before it count for at
    least, in thousandths of GPUs."""

    job: int
    state: JobState
    reason: Reason | None
    place: int = 0
    waiting: int = 0
    ahead_milli: int = 0
    blockers: tuple[Blocker, ...] = ()
    label: str = ""  # `1234_7` for a task of an array


def explain(state: State, reasons: Told, job_id: int, *, whole: bool = False) -> Explanation:
    """The one dominant reason of a job that is not over, of a `whole` array that of its next task; NotFound else."""
    job = _next_task(state, job_id) if whole else state.jobs.get(job_id)
    if job is None:
        raise NotFound(
            "job.not-found", f"job {job_id} is not waiting or running", "`gangline job show` knows ended jobs"
        )
    found = _reason(state, reasons, job)
    if job.state is not JobState.WAITING or job.blocked:
        return Explanation(job.id, job.state, found, label=job.label)
    before, waiting, ahead = _in_line(state, job)
    pool = found.fact("pool") if found else None
    blockers = _blockers(state, str(pool)) if pool else ()
    return Explanation(job.id, job.state, found, before + 1, waiting, ahead, blockers, job.label)


def _in_line(state: State, job: Job) -> tuple[int, int, int]:
    """How many jobs of its queue stand before it, how many wait there in all, and thousandths of GPUs that those before
    it count for at least."""
    before = waiting = ahead = 0
    for key, found in state.classes.items():
        if key.queue == job.spec.queue and found.waiting:
            count = bisect_left(found.waiting, place_of(job))
            before, waiting = before + count, waiting + len(found.waiting)
            ahead += count * refuse.counted(state, state.jobs[found.waiting[0].job].spec)
    return before, waiting, ahead


def _next_task(state: State, job_id: int) -> Job | None:
    """Of an array the first task that waits, else the first that is left; any other job itself."""
    array = state.arrays.get(job_id)
    if array is None or array.spec.array is None:
        return state.jobs.get(job_id)
    left = [
        state.jobs[each] for each in range(job_id, job_id + array.spec.array.count()) if each in state.jobs
    ]
    waiting = (job for job in left if job.state in (JobState.WAITING, JobState.HELD))
    return next(waiting, left[0] if left else None)


def how_far(state: State, job_id: int) -> str:
    """The state of a job, empty for an ended one."""
    job = state.jobs.get(job_id)
    return str(job.state) if job is not None else ""


def _reason(state: State, reasons: Told, job: Job) -> Reason | None:
    if job.hold is not None:
        return reason("wait.held", why=job.hold.why, job=job.id)
    if job.state is JobState.WAITING and job.blocked:
        return dependency_reason(job, lambda other: how_far(state, other))
    if job.state is JobState.WAITING:
        found = reasons.get(state.class_of(job)) or reason("wait.next-pass")
        return _with_refusal(state, job, found) if found.code == "wait.never" else found
    if job.attempt is None:
        return None
    parts = job.attempt.parts
    silent = [
        part.placement.node
        for part in parts
        if part.state is not PartState.ENDED
        and state.nodes[part.placement.node].contact is Contact.UNREACHABLE
    ]
    if silent:
        return reason("lost.nodes", nodes=", ".join(silent), attempt=str(job.attempt.id))
    stuck = [part for part in parts if part.state is PartState.STUCK]
    if stuck:
        return reason("end.stuck", node=stuck[0].placement.node, error=stuck[0].error)
    if job.state is JobState.STARTING:
        ready = sum(1 for part in parts if part.state is not PartState.WAITING)
        return reason("wait.starting", ready=ready, nodes=len(parts))
    return None


def _with_refusal(state: State, job: Job, found: Reason) -> Reason:
    """A job that was queued against its refusal: why it was refused, with the numbers of now."""
    never = refuse.impossible(state, job.spec)
    return found if never is None else reason("wait.never", why=never.sentence())


def _blockers(state: State, pool: str) -> tuple[Blocker, ...]:
    """Who holds devices in the pool, those first whose limits end soonest."""
    found: list[Blocker] = []
    for job in state.jobs.values():
        attempt = job.attempt
        if attempt is None:
            continue
        held = sum(
            len(part.placement.slots)
            for part in attempt.parts
            if part.state is not PartState.ENDED and state.nodes[part.placement.node].pool == pool
        )
        if held:
            found.append(Blocker(job.id, job.owner.name, held, attempt.deadline_us, job.label))
    found.sort(key=lambda blocker: (blocker.ends_us == 0, blocker.ends_us, blocker.job))
    return tuple(found[:MOST_BLOCKERS])
