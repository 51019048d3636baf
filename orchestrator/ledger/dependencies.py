"""What jobs wait for in other jobs: kept while they wait, settled when those start or end.

Comes in: a State, and a job that was taken in, has started or has ended. Goes out: waits that are met are gone and jobs
that wait for nothing more stand in their classes; a job whose wait can be met no more has its `doom`. Called by:
apply_jobs (after the record has changed). What is derived anew, at a start, is in `State.index_dependencies`.

A doomed job ends by an event of its own, which the controller records at once: folding decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from orchestrator.ledger.records import Job, TaskArray
from orchestrator.ledger.state import NameLine, State, name_of
from orchestrator.model.attempt import JobState
from orchestrator.model.dependency import On, Outcome, Tally, Wait, never_words, of_array, of_job, outcome

Verdict = Callable[[Wait], "str | bool | None"]  # met, open (None), or why it can be met no more


def taken_in(state: State, job: Job, waits: tuple[Wait, ...], doom: str = "") -> None:
    """A new job with what it waits for; it is in `state.jobs` and stands in no class yet."""
    job.waits, job.doom = waits, doom
    if job.doom:
        state.doomed[job.id] = True
    for wait in waits:
        state.dependents.setdefault((wait.job, wait.whole), {})[job.id] = True
    _line_up(state, job)


def _line_up(state: State, job: Job) -> None:
    """A singleton stands behind all of its name and person that came before it."""
    name = name_of(job)
    line = state.lines.get(name)
    if job.spec.singleton:
        if line is None:
            line = state.lines[name] = NameLine(
                [each.id for each in state.jobs.values() if name_of(each) == name and each.id != job.id]
            )
            line.jobs.sort()
        job.behind = bool(line.jobs) and line.jobs[0] < job.id
        line.singletons += 1
    if line is not None:
        insort(line.jobs, job.id)


def begun(state: State, job: Job, t_us: int) -> None:
    """Processes of it run for the first time: that settles what waits for its start."""
    _settle(state, (job.id, False), lambda wait: True if wait.on is On.START else None, t_us)
    array = state.arrays.get(job.array)
    if array is not None:
        _count(state, array, t_us, unstarted=-1)


def over(state: State, job: Job, t_us: int) -> None:
    """It has ended and is in `state.jobs` no more."""
    how = outcome(job.state, job.exit_code)
    for wait in job.waits:
        _forget(state, job, wait)
    state.doomed.pop(job.id, None)

    def verdict(wait: Wait) -> str | bool:
        return of_job(wait.on, how) or never_words(wait, how)

    _settle(state, (job.id, False), verdict, t_us)
    _leave_line(state, job, t_us)
    array = state.arrays.get(job.array)
    if array is not None:
        failed, never_ran = how is Outcome.FAILED, how is Outcome.NEVER_RAN
        _count(
            state, array, t_us, live=-1, unstarted=job.begun - 1, failed=int(failed), never_ran=int(never_ran)
        )
        if not array.live:
            del state.arrays[array.id]
            state.close_array(array)


def _count(state: State, array: TaskArray, t_us: int, **change: int) -> None:
    """Its tally moves; who waits for it is looked at only when that changes an answer, not at each task's end."""
    before = _answers(array.tally())
    for name, step in change.items():
        setattr(array, name, getattr(array, name) + step)
    tally = array.tally()
    if _answers(tally) == before:
        return
    how = Outcome.FAILED if tally.failed else Outcome.NEVER_RAN

    def verdict(wait: Wait) -> str | bool | None:
        met = of_array(wait.on, tally)
        return never_words(wait, how) if met is False else met

    _settle(state, (array.id, True), verdict, t_us)


def _answers(tally: Tally) -> tuple[bool | None, ...]:
    return tuple(of_array(on, tally) for on in On)


def _settle(state: State, key: tuple[int, bool], verdict: Verdict, t_us: int) -> None:
    """Go through who waits for that job or array."""
    for job_id in list(state.dependents.get(key, ())):
        job = state.jobs[job_id]
        left: list[Wait] = []
        for wait in job.waits:
            answer = verdict(wait) if (wait.job, wait.whole) == key else None
            if isinstance(answer, str):
                job.doom = job.doom or answer
                state.doomed[job.id] = True
            if answer is not True:
                left.append(wait)
        if not any((wait.job, wait.whole) == key for wait in left):
            _forget(state, job, Wait(key[0], On.END, key[1]))
        if len(left) < len(job.waits):
            _waits_less(state, job, tuple(left), job.behind, t_us)


def _waits_less(state: State, job: Job, waits: tuple[Wait, ...], behind: bool, t_us: int) -> None:
    waiting = job.state is JobState.WAITING
    if waiting:
        state.dequeue(job)
    job.waits, job.behind = waits, behind
    if waiting:
        if not job.blocked:
            job.waiting_us = t_us
        state.enqueue(job)
    state.moved.append(job.id)


def _forget(state: State, job: Job, wait: Wait) -> None:
    key = (wait.job, wait.whole)
    waiting = state.dependents.get(key)
    if waiting is not None:
        waiting.pop(job.id, None)
        if not waiting:
            del state.dependents[key]


def _leave_line(state: State, job: Job, t_us: int) -> None:
    line = state.lines.get(name_of(job))
    if line is None:
        return
    del line.jobs[bisect_left(line.jobs, job.id)]
    line.singletons -= job.spec.singleton
    if not line.singletons:
        del state.lines[name_of(job)]
        return
    first = state.jobs[line.jobs[0]]
    if first.behind:
        _waits_less(state, first, first.waits, False, t_us)


def free(state: State, job: Job) -> None:
    """It waits for nothing any more, whatever it was to wait for: it runs. It must stand in no class."""
    for wait in job.waits:
        _forget(state, job, wait)
    state.doomed.pop(job.id, None)
    job.waits, job.behind, job.doom = (), False, ""


def recovered(state: State, job: Job, array: int, index: int) -> None:
    """A job that was made anew from what nodes hold: maybe a task of an array that was forgotten as well."""
    if array and job.spec.array is not None:
        job.array, job.index = array, index
        known = state.arrays.get(array)
        if known is None:
            known = state.arrays[array] = TaskArray(array, job.spec, job.owner, job.spec.array.at_most)
        known.live += 1
        known.unstarted += 1
    _line_up(state, job)
