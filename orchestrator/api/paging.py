"""Live and ended jobs as one list, newest first, in pages that stay put while jobs come and end.

Comes in: filters and a cursor. Goes out: a page of job views and the next cursor. Called by: jobs.

The cursor is the lowest id of the page: new jobs have higher ids, so a walk sees each job at most once, and every job
that was there when it began. The view is read before the history: a job that ends in between is in both, never in
neither.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from orchestrator.api.hub import Hub
from orchestrator.controller.view import JobView
from orchestrator.model.attempt import ENDED_STATES, JobState
from orchestrator.store.base import HistoryQuery


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty: all. `since_us`: live, or ended at or after it (UTC microseconds)."""

    states: tuple[JobState, ...] = ()
    queue: str = ""
    owner: str = ""
    name: str = ""
    since_us: int = 0
    ids: tuple[int, int] = (0, 0)  # first and last


async def page(hub: Hub, wanted: Filter, before: int, limit: int) -> tuple[list[JobView], int]:
    """At most `limit` jobs with ids below `before` (0: the newest), and where the next page begins (0: nowhere)."""
    least, most = wanted.ids
    if most:
        before = min(before, most + 1) if before else most + 1
    live = _live(hub, wanted, before, limit + 1)
    ended: list[JobView] = []
    query = _query(wanted, before, limit + 1)
    if query is not None:
        ended = await hub.ended_page(query)
    found = {job.id: job for job in live} | {job.id: job for job in ended}
    ids = sorted((job_id for job_id in found if job_id >= least), reverse=True)
    jobs = [found[job_id] for job_id in ids[:limit]]
    return jobs, jobs[-1].id if len(ids) > limit else 0


def _live(hub: Hub, wanted: Filter, before: int, most: int) -> list[JobView]:
    if wanted.states and all(state in ENDED_STATES for state in wanted.states):
        return []
    table = hub.view.jobs
    ids = sorted(table)  # copied in one step: the core thread changes it
    at = bisect_left(ids, before) if before else len(ids)
    found: list[JobView] = []
    while at > 0 and len(found) < most:
        at -= 1
        job = table.get(ids[at])
        if job is not None and _matches(job, wanted):
            found.append(job)
    return found


def _matches(job: JobView, wanted: Filter) -> bool:
    return (
        (not wanted.states or job.state in wanted.states)
        and (not wanted.queue or job.spec.queue == wanted.queue)
        and (not wanted.owner or job.owner.name == wanted.owner)
        and (not wanted.name or job.spec.name == wanted.name)
    )


def _query(wanted: Filter, before: int, limit: int) -> HistoryQuery | None:
    """The same question to the history; None if no ended job can match."""
    states = tuple(state for state in wanted.states if state in ENDED_STATES)
    if wanted.states and not states:
        return None
    return HistoryQuery(
        before=before,
        limit=limit,
        owner=wanted.owner,
        queue=wanted.queue,
        name=wanted.name,
        states=tuple(map(str, states)),
        since_us=wanted.since_us,
    )
