"""Dependencies between jobs: resolved when a job is submitted, and the end of jobs whose wait can't be met.

Comes in: what a document depends on, State and the history of ended jobs. Goes out: `Waits`, or an error for what
nobody knows; recorded ends. Called by: intake (resolve), timers (end_doomed, once per cycle).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from orchestrator.controller import outcome
from orchestrator.controller.desk import Desk
from orchestrator.controller.view import JobView
from orchestrator.ledger.records import Job
from orchestrator.model import dependency
from orchestrator.model.array import Array
from orchestrator.model.attempt import JobState
from orchestrator.model.dependency import Dependency, On, Outcome, Tally, Wait
from orchestrator.model.errors import NotFound
from orchestrator.model.ids import JobRef
from orchestrator.model.job import JobSpec

MOST_AT_ONCE = (
    1000  # jobs that one cycle cancels for their dependencies: an array may have a hundred times as many
)


@dataclass(frozen=True, slots=True)
class Waits:
    """What is open of a job's dependencies; `doom`: why one can never be met, empty if all can."""

    open: tuple[Wait, ...] = ()
    doom: str = ""


def resolve(desk: Desk, spec: JobSpec) -> Waits:
    """What the job waits for, as of now: what is met already is left out. NotFound for a job that nobody knows."""
    waits: dict[Wait, bool] = {}
    doom = ""
    for asked in spec.depends_on:
        wait, met = _look(desk, asked)
        if met is None:
            waits[wait] = True
        elif isinstance(met, str):
            doom = doom or met
    return Waits((), doom) if doom else Waits(tuple(waits))


def _look(desk: Desk, asked: Dependency) -> tuple[Wait, bool | str | None]:
    """The wait, and whether it is met (True), open (None), or why it never will be."""
    job_id = find(desk, JobRef(asked.job, asked.index))
    if asked.index is None:
        array = desk.state.arrays.get(job_id)
        if array is not None:
            wait = Wait(job_id, asked.on, True)
            how = Outcome.FAILED if array.failed else Outcome.NEVER_RAN
            return wait, _verdict(wait, dependency.of_array(asked.on, array.tally()), how)
    live = desk.state.jobs.get(job_id)
    if live is not None:
        return Wait(job_id, asked.on), True if asked.on is On.START and live.begun else None
    past = desk.writer.past(job_id)
    if past is None:
        raise unknown(JobRef(asked.job, asked.index))
    if past.whole is not None and asked.index is None:
        return _ended_array(desk, job_id, past.whole, asked.on)
    wait, how = Wait(job_id, asked.on), dependency.outcome(past.state, past.exit_code)
    return wait, _verdict(wait, dependency.of_job(asked.on, how), how)


def _ended_array(desk: Desk, job_id: int, array: Array, on: On) -> tuple[Wait, bool | str | None]:
    found = desk.writer.outcomes(job_id, job_id + array.count() - 1)
    failed, never_ran = found.count(Outcome.FAILED), found.count(Outcome.NEVER_RAN)
    wait, how = Wait(job_id, on, True), Outcome.FAILED if failed else Outcome.NEVER_RAN
    return wait, _verdict(wait, dependency.of_array(on, Tally(0, 0, failed, never_ran)), how)


def _verdict(wait: Wait, met: bool | None, how: Outcome) -> bool | str | None:
    return dependency.never_words(wait, how) if met is False else met


def find(desk: Desk, ref: JobRef) -> int:
    """The id of what people call `1234` or `1234_7`, live or ended. NotFound."""
    if ref.task is None:
        return ref.job
    array = desk.state.arrays.get(ref.job)
    known = array.spec.array if array is not None else None
    if known is None:
        first: Job | JobView | None = desk.state.jobs.get(ref.job) or desk.writer.past(ref.job)
        if first is None:
            raise unknown(ref)
        known = first.spec.array if first.array == first.id else None
    return ref.job + place_in(known, ref)


def place_in(array: Array | None, ref: JobRef) -> int:
    """How many tasks of the array come before that one. NotFound if it has none such, or is no array."""
    if array is None:
        raise NotFound("job.no-array", f"job {ref.job} is no array", f"write {ref.job} alone")
    place = array.place_of(ref.task) if ref.task is not None else 0
    if place is None:
        raise NotFound(
            "job.no-task", f"array {ref.job} has no task {ref.task}", f"its tasks are {array.text()}"
        )
    return place


def unknown(ref: JobRef) -> NotFound:
    """Nobody knows the job that something is to follow."""
    return NotFound(
        "depends.not-found",
        f"there is no job {ref.job} to wait for",
        "`gangline jobs -a --since all` lists jobs",
    )


def end_doomed(desk: Desk) -> None:
    """Cancel jobs whose dependency can never be met, and what depended on those in turn."""
    left = MOST_AT_ONCE
    while desk.state.doomed and left > 0:
        for job_id in list(islice(desk.state.doomed, left)):
            job = desk.state.jobs[job_id]
            outcome.end_job(desk, job, JobState.CANCELLED, 0, job.doom)
            left -= 1
