"""Whether a job that nobody has submitted would start now, and where, else why not; of an array, how many of its tasks.

Comes in: State, policy, the job as asked for, whose it would be, the time, a work budget. Goes out: `Outlook`, with the
`Start`s that a submit at this moment would get from its pass, and the `Reason` that it, or the next task, would be
refused or wait with. State is as it was; of `State.memory`, which is derived from it, nothing follows that would not
follow anyway. Called by: controller, for a question of a person.

It is no second way to decide: the job stands in State while one real pass is made, and that pass is thrown away. So it
counts with all who wait before it, and with nodes that are kept for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from orchestrator.ledger.records import Job, TaskArray
from orchestrator.ledger.state import State
from orchestrator.model.capacity import Shape
from orchestrator.model.decisions import Reasons, Start
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.reasons import Reason, reason
from orchestrator.scheduler import refuse
from orchestrator.scheduler.cycle import decide
from orchestrator.scheduler.policy import Policy

MOST_TASKS = 2000  # of an array that are tried: a pass over them takes a few tenths of a second


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would come of it. `starts`: of the job, or of each task that would start, in order; `why`: why it, or the
    next task, would not; None if all that were tried would start."""

    starts: tuple[Start, ...] = ()
    why: Reason | None = None
    tasks: int = 1  # that it has
    tried: int = 1  # of them


class _Told:
    """A Reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.waits: Reasons | None = None

    def waiting(self, reasons: Reasons) -> None:
        self.waits = reasons


def what_if(
    state: State,
    policy: Policy,
    spec: JobSpec,
    owner: Owner,
    now_us: int,
    work_budget: int,
    shapes: Mapping[str, Shape] | None = None,
) -> Outlook:
    """`shapes`: as for `refuse.never`. A job that asks to be held is looked at as if it were released."""
    tasks = spec.array.count() if spec.array is not None else 1
    never = refuse.never(state, spec, owner.name, shapes)
    if never is not None:
        return Outlook((), never, tasks, 0)
    told = _Told()
    with _submitted(state, replace(spec, hold=False), owner, now_us) as jobs:
        decisions = decide(state, policy, now_us, work_budget, told)
        starts = tuple(one for one in decisions if jobs[0].id <= one.attempt.job <= jobs[-1].id)
        waits = told.waits.get(state.class_of(jobs[0])) if told.waits is not None else None
    if len(starts) == len(jobs):
        return Outlook(starts, None, tasks, len(jobs))
    why = _of_no_number(waits, jobs[0].array) if waits is not None else reason("wait.next-pass")
    return Outlook(starts, why, tasks, len(jobs))


@contextmanager
def _submitted(state: State, spec: JobSpec, owner: Owner, now_us: int) -> Iterator[list[Job]]:
    """The job, or the first tasks of the array, as they would stand in State; gone again in the end."""
    first = state.next_job
    jobs = [Job(first, spec, owner, now_us, now_us)]
    if spec.array is not None:
        count, at_most = spec.array.count(), spec.array.at_most
        tried = min(count, MOST_TASKS, at_most + 1 if at_most else count)
        state.arrays[first] = TaskArray(first, spec, owner, at_most, count, count)
        # Index 0 for all: only what a process is told depends on it.
        jobs = [Job(first + at, spec, owner, now_us, now_us, array=first) for at in range(tried)]
    for job in jobs:
        state.jobs[job.id] = job
        state.open_scope(job)  # an empty scope says nothing, and the next pass may know it already
        state.enqueue(job)
    try:
        yield jobs
    finally:
        for job in jobs:
            state.dequeue(job)
            del state.jobs[job.id]
        array = state.arrays.pop(first, None)
        if array is not None:
            state.close_array(array)


def _of_no_number(why: Reason, array: int) -> Reason:
    """It is no array yet: the number that it would have says nothing to the person who asks."""
    name = f"array {array}"
    facts = tuple((key, "the array" if value == name else value) for key, value in why.facts)
    return replace(why, facts=facts, also=_of_no_number(why.also, array) if why.also is not None else None)
