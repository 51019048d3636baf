"""The routes of jobs, but for submitting and output.

Comes in: requests with a caller. Goes out: jobs and lists of them, from the view or the history; commands to the
controller. Called by: app. Reading is for everyone with a role; acting on a job is for its owner and operators.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Request
from starlette.responses import Response

from orchestrator.api import paging, render
from orchestrator.api.access import Caller
from orchestrator.api.deps import CallerDep, HubDep, ReaderDep, problems, reply
from orchestrator.api.hub import Hub
from orchestrator.api.problems import InvalidRequest
from orchestrator.controller import commands
from orchestrator.controller.explain import Explanation, explain
from orchestrator.controller.view import JobView, View
from orchestrator.ledger.state import State
from orchestrator.model.attempt import ENDED_STATES, JobState
from orchestrator.model.cluster import Role
from orchestrator.model.errors import NotFound
from orchestrator.model.reasons import Reason
from orchestrator.wire import api as wire
from orchestrator.wire.faults import did_you_mean, shown

router = APIRouter(prefix=wire.PREFIX, tags=["jobs"])

JobPath = Annotated[
    int, Path(alias="job", ge=1, le=2**53 - 1, description="Number of the job.", examples=[1234])
]
CancelJobBody = Annotated[wire.CancelJob, Body(default_factory=wire.CancelJob)]
ActOnJobBody = Annotated[wire.ActOnJob, Body(default_factory=wire.ActOnJob)]
_TIME = {"format": "date-time"}
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
Text = Annotated[str, Query(max_length=253)]


@router.get("/jobs", response_model=wire.JobList, responses=problems())
async def list_jobs(
    hub: HubDep,
    _: ReaderDep,
    state: Annotated[
        str, Query(max_length=200, description="States, by commas.", examples=["waiting,running"])
    ] = "",
    queue: Text = "",
    owner: Text = "",
    name: Text = "",
    since: Annotated[
        str | None, Query(description="Live, or ended since (RFC 3339).", json_schema_extra=_TIME)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=wire.MOST_ITEMS)] = 100,
    cursor: Annotated[str, Query(max_length=20, description="`next` of the page before.")] = "",
) -> Response:
    """Jobs, live and ended, newest first."""
    wanted = paging.Filter(_states(state), queue, owner, name, _since(since))
    jobs, before = await paging.page(hub, wanted, _cursor(cursor), limit)
    view = hub.view
    items = [render.summary(job, _waits_for(view, job)) for job in jobs]
    return reply(wire.JobList(items=items, next=str(before) if before else None))


@router.get("/jobs/{job}", response_model=wire.Job, responses=problems(404))
async def get_job(hub: HubDep, caller: ReaderDep, job: JobPath) -> Response:
    """One job, live or ended."""
    return _reply(hub, caller, await hub.job(job))


@router.get("/jobs/{job}/wait", response_model=wire.Job, responses=problems(404, 503))
async def wait_for_job(
    request: Request,
    hub: HubDep,
    caller: ReaderDep,
    job: JobPath,
    timeout: Annotated[int, Query(ge=0, le=wire.MOST_WAIT_S, description="Seconds.")] = 30,  # noqa: ASYNC109
    seen: Annotated[
        str, Query(max_length=32, description="A revision: answer when the job differs from it.")
    ] = "",
) -> Response:
    """The job when it has ended (or, with `seen`, when it has changed), or as it is after the time given."""
    deadline = asyncio.get_running_loop().time() + timeout
    found = await hub.job(job)
    with hub.poll(request.scope):
        while not _worth_telling(found, seen):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            live = await hub.controller.job_changed(job, found, left)
            found = live if live is not None else await hub.job(job)
    return _reply(hub, caller, found)


@router.get("/jobs/{job}/explain", response_model=wire.Explanation, responses=problems(404))
async def explain_job(hub: HubDep, _: ReaderDep, job: JobPath) -> Response:
    """Why a job does not run: its one dominant reason, its place, what is in its way."""

    def look(state: State) -> Explanation:
        return explain(state, hub.view.reasons, job)

    try:
        found: Explanation = await hub.controller.do(commands.Query(look))
    except NotFound:
        return reply(render.ended_explanation(await hub.job(job)))
    return reply(render.explanation(found))


@router.post("/jobs/{job}/cancel", response_model=wire.Job, responses=problems(404, 409))
async def cancel_job(hub: HubDep, caller: CallerDep, job: JobPath, body: CancelJobBody) -> Response:
    """End a job: at once if it waits, else by its own signal and grace, then kill."""
    return await _act(hub, caller, job, commands.CancelJob(job, caller.by, body.why, body.now))


@router.post("/jobs/{job}/hold", response_model=wire.Job, responses=problems(404, 409))
async def hold_job(hub: HubDep, caller: CallerDep, job: JobPath, body: ActOnJobBody) -> Response:
    """Keep a waiting job from starting."""
    return await _act(hub, caller, job, commands.HoldJob(job, caller.by, body.why))


@router.post("/jobs/{job}/release", response_model=wire.Job, responses=problems(404, 409))
async def release_job(hub: HubDep, caller: CallerDep, job: JobPath, body: ActOnJobBody) -> Response:
    """Let a held job wait again."""
    return await _act(hub, caller, job, commands.ReleaseJob(job, caller.by))


@router.post("/jobs/{job}/requeue", response_model=wire.Job, responses=problems(404, 409))
async def requeue_job(hub: HubDep, caller: CallerDep, job: JobPath, body: ActOnJobBody) -> Response:
    """End a job's attempt and let it wait again."""
    return await _act(hub, caller, job, commands.RequeueJob(job, caller.by, body.why))


# --- inside ---------------------------------------------------------------------------------------------------------


async def _act(hub: Hub, caller: Caller, job: int, command: commands.Command) -> Response:
    """Check, do, and show the job as it is then."""
    hub.access.require(caller, Role.SUBMIT)
    found = await hub.job(job)
    await hub.access.require_job(caller, found.owner.name, found.spec.queue)
    await hub.controller.do(command)
    await hub.caught_up()
    return _reply(hub, caller, await hub.job(job))


def _reply(hub: Hub, caller: Caller, found: JobView) -> Response:
    secrets = caller.name == found.owner.name or caller.has(Role.OPERATOR)
    return reply(render.job(found, _waits_for(hub.view, found), secrets=secrets))


def _waits_for(view: View, found: JobView) -> Reason | None:
    return view.reason_of(found) if found.state is JobState.WAITING else None


def _worth_telling(found: JobView, seen: str) -> bool:
    return found.state in ENDED_STATES or (bool(seen) and render.revision(found) != seen)


def _states(text: str) -> tuple[JobState, ...]:
    known = [state.value for state in JobState]
    names = [name.strip() for name in text.split(",") if name.strip()]
    items = tuple(
        wire.ProblemItem(
            path="query.state",
            code="request.unknown-state",
            message=f"there is no state {shown(name)}",
            hint=did_you_mean(name, known) or f"known: {', '.join(known)}",
        )
        for name in dict.fromkeys(names)
        if name not in known
    )
    if items:
        raise InvalidRequest(items)
    return tuple(JobState(name) for name in names)


def _since(text: str | None) -> int:
    if text is None:
        return 0
    try:
        if not _RFC_3339.fullmatch(text):
            raise ValueError
        return max(0, wire.micros_of(datetime.fromisoformat(text.upper())))
    except (ValueError, OverflowError):
        raise _invalid(
            "query.since",
            "request.bad-time",
            f"{shown(text)} is no time with a zone",
            "write it as in 2026-01-31T08:00:00Z",
        ) from None


def _cursor(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**53):
        raise _invalid(
            "query.cursor", "request.bad-cursor", "this is no cursor", "give `next` of the page before"
        )
    return int(text)


def _invalid(path: str, code: str, message: str, hint: str) -> InvalidRequest:
    return InvalidRequest((wire.ProblemItem(path=path, code=code, message=message, hint=hint),))
