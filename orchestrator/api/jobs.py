"""The routes of jobs, but for submitting and output.

Comes in: requests with a caller. Goes out: jobs and lists of them, from the view or the history; commands to the
controller. Called by: app. Reading is for everyone with a role; acting on a job is for its owner and operators.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Request
from starlette.responses import Response

from orchestrator.api import paging, render
from orchestrator.api.access import Caller
from orchestrator.api.counted import Counted
from orchestrator.api.deps import CallerDep, HubDep, ReaderDep, problems, reply
from orchestrator.api.hub import Hub
from orchestrator.api.problems import InvalidRequest
from orchestrator.controller import commands
from orchestrator.controller.explain import Explanation, explain
from orchestrator.controller.view import JobView, View
from orchestrator.ledger.state import State
from orchestrator.model.array import Array
from orchestrator.model.attempt import ENDED_STATES, JobState
from orchestrator.model.cluster import Role
from orchestrator.model.errors import GanglineError, NotFound
from orchestrator.model.ids import parse_job
from orchestrator.model.reasons import Reason
from orchestrator.wire import api as wire
from orchestrator.wire.faults import did_you_mean, shown

router = APIRouter(prefix=wire.PREFIX, tags=["jobs"])

JobPath = Annotated[
    str,
    Path(
        alias="job",
        pattern=wire.JOB_PATTERN,
        description="Number of the job, or array and index of a task: `1234_7`.",
        examples=["1234"],
    ),
]
SetJobBody = Annotated[wire.SetJob, Body(default_factory=wire.SetJob)]
MOST_A_REQUEST = 5_000  # tasks of an array: no answer takes more than a few seconds
MOST_TOGETHER = 500  # of them in one go: others are answered between two of these
CancelJobBody = Annotated[wire.CancelJob, Body(default_factory=wire.CancelJob)]
ActOnJobBody = Annotated[wire.ActOnJob, Body(default_factory=wire.ActOnJob)]
_TIME = {"format": "date-time"}
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
Text = Annotated[str, Query(max_length=253)]


@router.get("/jobs", response_model=wire.JobList, responses=problems())
async def list_jobs(  # noqa: PLR0913 - one argument for each query parameter
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
    array: Annotated[int, Query(ge=0, le=2**53 - 1, description="Only tasks of this array.")] = 0,
    limit: Annotated[int, Query(ge=1, le=wire.MOST_ITEMS)] = 100,
    cursor: Annotated[str, Query(max_length=20, description="`next` of the page before.")] = "",
) -> Response:
    """Jobs, live and ended, newest first."""
    tasks = (await hub.job(array)).whole if array else None
    if array and tasks is None:
        raise NotFound("job.no-array", f"job {array} is no array", "leave `array` out")
    span = (array, array + tasks.count() - 1) if tasks is not None else (0, 0)
    wanted = paging.Filter(_states(state), queue, owner, name, _since(since), span)
    jobs, before = await paging.page(hub, wanted, _cursor(cursor), limit)
    view = hub.view
    counted = Counted(view)
    items = [render.summary(job, _waits_for(view, job), counted) for job in jobs]
    return reply(wire.JobList(items=items, next=str(before) if before else None))


@router.get("/jobs/{job}", response_model=wire.Job, responses=problems(404))
async def get_job(hub: HubDep, caller: ReaderDep, job: JobPath) -> Response:
    """One job, live or ended. The bare number of an array gives its first task, with how all of them stand."""
    found = await hub.named(job)
    if found.whole is None or parse_job(job).task is not None:
        return _reply(hub, caller, found)
    states = await hub.tasks(found)
    return _reply(hub, caller, found, tasks=wire.Tasks(exit_code=states.pop(""), states=states))


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
    found = await hub.named(job)
    with hub.poll(request.scope):
        while not _worth_telling(found, seen):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            live = await hub.controller.job_changed(found.id, found, left)
            found = live if live is not None else await hub.job(found.id)
    return _reply(hub, caller, found)


@router.get("/jobs/{job}/explain", response_model=wire.Explanation, responses=problems(404))
async def explain_job(hub: HubDep, _: ReaderDep, job: JobPath) -> Response:
    """Why a job does not run: its one dominant reason, its place, what is in its way. Of a whole array: of the next
    task that waits."""
    ref = parse_job(job)
    job_id = ref.job if ref.task is None else (await hub.named(job)).id

    def look(state: State) -> Explanation:
        return explain(state, hub.view.reasons, job_id, whole=ref.task is None)

    try:
        found: Explanation = await hub.controller.do(commands.Query(look))
    except NotFound:
        return reply(render.ended_explanation(await hub.job(job_id)))
    return reply(render.explanation(found))


@router.post("/jobs/{job}/cancel", response_model=wire.Job, responses=problems(404, 409))
async def cancel_job(hub: HubDep, caller: CallerDep, job: JobPath, body: CancelJobBody) -> Response:
    """End a job: at once if it waits, else by its own signal and grace, then kill."""
    return await _act(
        hub, caller, job, body.below, lambda job_id: commands.CancelJob(job_id, caller.by, body.why, body.now)
    )


@router.post("/jobs/{job}/hold", response_model=wire.Job, responses=problems(404, 409))
async def hold_job(hub: HubDep, caller: CallerDep, job: JobPath, body: ActOnJobBody) -> Response:
    """Keep a waiting job from starting."""
    return await _act(
        hub, caller, job, body.below, lambda job_id: commands.HoldJob(job_id, caller.by, body.why)
    )


@router.post("/jobs/{job}/release", response_model=wire.Job, responses=problems(404, 409))
async def release_job(hub: HubDep, caller: CallerDep, job: JobPath, body: ActOnJobBody) -> Response:
    """Let a held job wait again."""
    return await _act(hub, caller, job, body.below, lambda job_id: commands.ReleaseJob(job_id, caller.by))


@router.post("/jobs/{job}/requeue", response_model=wire.Job, responses=problems(404, 409))
async def requeue_job(hub: HubDep, caller: CallerDep, job: JobPath, body: ActOnJobBody) -> Response:
    """End a job's attempt and let it wait again."""
    return await _act(
        hub, caller, job, body.below, lambda job_id: commands.RequeueJob(job_id, caller.by, body.why)
    )


@router.post("/jobs/{job}/prioritize", response_model=wire.Job, responses=problems(404, 409))
async def prioritize_job(hub: HubDep, caller: CallerDep, job: JobPath, body: wire.PrioritizeJob) -> Response:
    """Give a job that has not started another priority: higher goes first."""
    return await _act(
        hub, caller, job, body.below, lambda job_id: commands.PrioritizeJob(job_id, body.priority, caller.by)
    )


@router.post("/jobs/{job}/set", response_model=wire.Job, responses=problems(404, 409))
async def set_job(hub: HubDep, caller: CallerDep, job: JobPath, body: SetJobBody) -> Response:
    """Change how many tasks of an array have an attempt at a time; those that have one keep it. Shows the first task
    that has not ended."""
    found = await _allowed(hub, caller, job)
    if body.at_most is not None:
        await hub.controller.do(commands.ThrottleArray(found.id, body.at_most, caller.by))
    await hub.caught_up()
    tasks = found.whole.count() if found.whole is not None and parse_job(job).task is None else 1
    left = (job_id for job_id in range(found.id, found.id + tasks) if job_id in hub.view.jobs)
    return _reply(hub, caller, await hub.job(next(left, found.id)))


# --- inside ---------------------------------------------------------------------------------------------------------


Act = Callable[
    [int],
    commands.CancelJob
    | commands.HoldJob
    | commands.ReleaseJob
    | commands.RequeueJob
    | commands.PrioritizeJob,
]


async def _act(hub: Hub, caller: Caller, job: str, below: int, act: Act) -> Response:
    """Check, do, and show the job as it is then. The bare number of an array means all of its tasks: the first of those
    that it was done to is shown."""
    found = await _allowed(hub, caller, job)
    first, whole = found.id, dict[str, int | None]()
    if found.whole is not None and parse_job(job).task is None:
        first, whole = await _act_on_all(hub, found.id, found.whole, below, act)
    else:
        await hub.controller.do(act(found.id))
    await hub.caught_up()
    return _reply(hub, caller, await hub.job(first), **whole)


async def _allowed(hub: Hub, caller: Caller, job: str) -> JobView:
    hub.access.require(caller, Role.SUBMIT)
    found = await hub.named(job)
    await hub.access.require_job(caller, found.owner.name, found.spec.queue)
    return found


async def _act_on_all(
    hub: Hub, first: int, array: Array, below: int, act: Act
) -> tuple[int, dict[str, int | None]]:
    """The first task that it was done to, if any; to how many it was, and where to go on. The last refusal if there was
    no other answer at all. Tasks that wait longest come last, so that nothing starts meanwhile that is about to be
    cancelled."""
    await hub.caught_up()
    live, end = hub.view.jobs, min(below or first + array.count(), first + array.count())
    ids = [job_id for job_id in reversed(range(first, end)) if job_id in live]
    if not ids and not below:
        await hub.controller.do(act(first))
        return first, {"acted": 1}
    now, more = ids[:MOST_A_REQUEST], len(ids) > MOST_A_REQUEST
    results: list[object] = []
    for at in range(0, len(now), MOST_TOGETHER):
        part = tuple(act(job_id) for job_id in now[at : at + MOST_TOGETHER])
        results += await hub.controller.do(commands.Together(part))
    refusals = [each for each in results if isinstance(each, GanglineError)]
    if refusals and len(refusals) == len(results) and not (below or more):
        raise refusals[-1]
    done = [job_id for job_id, each in zip(now, results, strict=True) if not isinstance(each, GanglineError)]
    return min(done, default=first), {"acted": len(done), "next": now[-1] if more else None}


def _reply(hub: Hub, caller: Caller, found: JobView, **whole: object) -> Response:
    secrets = caller.name == found.owner.name or caller.has(Role.OPERATOR)
    view = hub.view
    return reply(render.job(found, _waits_for(view, found), Counted(view), secrets=secrets, **whole))


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
