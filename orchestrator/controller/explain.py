"""Why a job waits, rendered on demand: the reason of its class with its own place, blockers and history.

Comes in: State and the view's reasons, a job id. Goes out: `Explanation`. Called by: api, through a `Query`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.ledger.records import Job
from orchestrator.ledger.state import ClassKey, State, class_key, place_of
from orchestrator.model.attempt import JobState, PartState
from orchestrator.model.errors import NotFound
from orchestrator.model.node import Contact
from orchestrator.model.reasons import Reason, reason

MOST_BLOCKERS = 10


@dataclass(frozen=True, slots=True)
class Blocker:
    """A job that holds devices where this one could run. `ends_us`: its time limit, 0 if it has none."""

    job: int
    owner: str
    gpus: int
    ends_us: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """`place` counts from 1 within its queue (0: not waiting); `ahead_gpus` is what those before it ask for."""

    job: int
    state: JobState
    reason: Reason | None
    place: int = 0
    waiting: int = 0
    ahead_gpus: int = 0
    blockers: tuple[Blocker, ...] = ()


def explain(state: State, reasons: dict[ClassKey, Reason], job_id: int) -> Explanation:
    """The one dominant reason of a job that is not over; NotFound for others."""
    job = state.jobs.get(job_id)
    if job is None:
        raise NotFound(
            "job.not-found", f"job {job_id} is not waiting or running", "`gangline job show` knows ended jobs"
        )
    found = _reason(state, reasons, job)
    if job.state is not JobState.WAITING:
        return Explanation(job.id, job.state, found)
    line = sorted(
        place_of(other)
        for other in state.jobs.values()
        if other.state is JobState.WAITING and other.spec.queue == job.spec.queue
    )
    at = line.index(place_of(job))
    ahead = sum(state.jobs[place.job].spec.request.total_gpus() for place in line[:at])
    pool = found.fact("pool") if found else None
    blockers = _blockers(state, str(pool)) if pool else ()
    return Explanation(job.id, job.state, found, at + 1, len(line), ahead, blockers)


def _reason(state: State, reasons: dict[ClassKey, Reason], job: Job) -> Reason | None:
    if job.hold is not None:
        return reason("wait.held", why=job.hold.why, job=job.id)
    if job.state is JobState.WAITING:
        return reasons.get(class_key(job.spec, job.owner.name), reason("wait.next-pass"))
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
            found.append(Blocker(job.id, job.owner.name, held, attempt.deadline_us))
    found.sort(key=lambda blocker: (blocker.ends_us == 0, blocker.ends_us, blocker.job))
    return tuple(found[:MOST_BLOCKERS])
