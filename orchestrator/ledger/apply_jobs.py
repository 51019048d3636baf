"""Folding what happens to jobs and their attempts.

Comes in: a State and an event of a job or an attempt. Goes out: the State changed. Called by: apply.

Each handler checks what the event presupposes and raises ValueError or KeyError otherwise; apply adds the place.
"""

from __future__ import annotations

from orchestrator.ledger import dependencies, events
from orchestrator.ledger.apply_nodes import settle
from orchestrator.ledger.events import Event
from orchestrator.ledger.records import (
    PAST_KEPT,
    PRESUMED_KEPT,
    Attempt,
    Ending,
    Hold,
    Job,
    NodeFault,
    Orphan,
    Part,
    TaskArray,
)
from orchestrator.ledger.state import State, amounts, attempt_placements
from orchestrator.model.attempt import (
    ENDED_STATES,
    AttemptState,
    AttemptSummary,
    JobState,
    PartState,
    RankFailure,
)
from orchestrator.model.ids import AttemptId


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def live(state: State, attempt: AttemptId) -> tuple[Job, Attempt]:
    """The job and its live attempt of that id; ValueError if that attempt is not the live one."""
    job = state.jobs.get(attempt.job)
    if job is None or job.attempt is None or job.attempt.id != attempt:
        raise ValueError(f"attempt {attempt} is not alive")
    return job, job.attempt


def _live_part(state: State, attempt_id: AttemptId, node: str, n: int) -> tuple[Job, Attempt, Part]:
    job, attempt = live(state, attempt_id)
    part = attempt.part(node)
    if part is None or part.state is PartState.ENDED:
        raise ValueError(f"attempt {attempt_id} has no live part on {node}")
    state.nodes[node].acked = max(state.nodes[node].acked, n)
    return job, attempt, part


# --- jobs -----------------------------------------------------------------------------------------------------


def submitted(state: State, event: Event, body: events.JobSubmitted) -> None:
    """A new job waits, or is held if it asks for that; an array is as many as it has indices."""
    _require(body.job not in state.jobs and body.job >= state.next_job, f"job {body.job} exists already")
    for wait in body.waits:
        there = wait.job in (state.arrays if wait.whole else state.jobs)
        _require(there, f"job {body.job} waits for {wait.job}, which is not there")
    array = body.spec.array
    state.demand.add(body.spec, array.count() if array is not None else 1)
    if array is None:
        _take_in(state, event, body, Job(body.job, body.spec, body.owner, event.t_us, event.t_us))
        return
    count = array.count()
    state.arrays[body.job] = TaskArray(body.job, body.spec, body.owner, array.at_most, count, count)
    for job_id, index in enumerate(array.indices(), body.job):
        job = Job(job_id, body.spec, body.owner, event.t_us, event.t_us, array=body.job, index=index)
        _take_in(state, event, body, job)
    state.moved.extend(range(body.job, body.job + count))


def _take_in(state: State, event: Event, body: events.JobSubmitted, job: Job) -> None:
    state.jobs[job.id] = job
    state.next_job = job.id + 1
    state.open_scope(job)
    dependencies.taken_in(state, job, body.waits, body.doom)
    if job.spec.hold:
        job.state = JobState.HELD
        job.hold = Hold("submitted with hold", "held", event.by, event.t_us)
    else:
        state.enqueue(job)


def throttled(state: State, event: Event, body: events.ArrayThrottled) -> None:
    """Another number of its tasks may have an attempt at a time; those that have one keep it."""
    array = state.arrays[body.array]
    _require(body.at_most >= 0, f"array {array.id} can't have {body.at_most} task(s) at a time")
    if array.at_most and body.at_most:
        state.throttle(array, body.at_most)
        return
    tasks = [job for job in state.jobs.values() if job.array == array.id]
    for job in tasks:  # they count in another scope from now on
        if job.state is JobState.WAITING:
            state.dequeue(job)
        if job.attempt is not None:
            state.limits.release(state.scope(job), amounts(state, attempt_placements(job.attempt)))
    if array.at_most:
        state.close_array(array)
    array.at_most = body.at_most
    for job in tasks:
        state.open_scope(job)
        if job.state is JobState.WAITING:
            state.enqueue(job)
        if job.attempt is not None:
            state.limits.take(state.scope(job), amounts(state, attempt_placements(job.attempt)))


def held(state: State, event: Event, body: events.JobHeld) -> None:
    """It waits no longer, or not again after its attempt."""
    job = state.jobs[body.job]
    _require(job.attempt is None, f"job {job.id} has a live attempt")
    _require(job.state is not JobState.HELD, f"job {job.id} is held already")
    if job.state is JobState.WAITING:
        state.dequeue(job)
    job.state = JobState.HELD
    job.hold = Hold(body.why, body.code, event.by, event.t_us)


def released(state: State, event: Event, body: events.JobReleased) -> None:
    """It waits again with a clean slate."""
    job = state.jobs[body.job]
    _require(job.state is JobState.HELD, f"job {job.id} is not held")
    job.hold, job.failures, job.faults, job.from_nodes = None, {}, [], False
    _wait(state, job, event.t_us)


def _wait(state: State, job: Job, t_us: int) -> None:
    job.state, job.waiting_us = JobState.WAITING, t_us
    state.enqueue(job)


def prioritized(state: State, event: Event, body: events.JobPrioritized) -> None:
    """It moves to its new place among those that wait; a held one takes it along."""
    job = state.jobs[body.job]
    _require(job.attempt is None, f"job {job.id} has a live attempt")
    if job.state is JobState.WAITING:
        state.dequeue(job)
    job.priority_set = body.priority
    if job.state is JobState.WAITING:
        state.enqueue(job)


def cancel_requested(state: State, event: Event, body: events.JobCancelRequested) -> None:
    """Its end is wanted: no attempt follows the present one."""
    job = state.jobs[body.job]
    _require(job.cancel_why is None, f"the end of job {job.id} is wanted already")
    job.cancel_why = body.why


def requeued(state: State, event: Event, body: events.JobRequeued) -> None:
    """After an attempt it waits again, in its old place."""
    job = state.jobs[body.job]
    _require(
        job.attempt is None and job.state is JobState.ENDING, f"job {job.id} has had no attempt just now"
    )
    job.why = body.why
    _wait(state, job, event.t_us)


def ended(state: State, event: Event, body: events.JobEnded) -> None:
    """It leaves the state; the controller keeps its record in the history."""
    job = state.jobs[body.job]
    _require(job.attempt is None, f"job {job.id} has a live attempt")
    _require(body.state in ENDED_STATES, f"{body.state} is not the end of a job")
    if job.state is JobState.WAITING:
        state.dequeue(job)
    job.state, job.exit_code, job.why, job.ended_us = body.state, body.exit_code, body.why, event.t_us
    job.hold = None
    del state.jobs[job.id]
    dependencies.over(state, job, event.t_us)


# --- the way up -----------------------------------------------------------------------------------------------


def allocated(state: State, event: Event, body: events.AttemptAllocated) -> None:
    """Devices, limits and the port are taken for the whole gang."""
    job = state.jobs[body.attempt.job]
    _require(job.state is JobState.WAITING, f"job {job.id} does not wait")
    _require(not job.blocked, f"job {job.id} waits for other jobs")
    _require(body.attempt.number == job.attempts + 1, f"attempt {body.attempt} is not the next one")
    state.dequeue(job)
    job.attempts, job.state = body.attempt.number, JobState.STARTING
    job.attempt = Attempt(
        id=body.attempt,
        parts=[Part(placement) for placement in body.placements],
        state=AttemptState.ALLOCATED,
        allocated_us=event.t_us,
        master_address=body.master_address,
        master_port=body.master_port,
        time_limit_s=body.time_limit_s,
    )
    state.hold_attempt(job, job.attempt, runs=False)
    state.count_use(state.scope(job), event.t_us)


def prepared(state: State, event: Event, body: events.AttemptPrepared) -> None:
    """One more node is ready."""
    _, attempt, part = _live_part(state, body.attempt, body.node, body.n)
    _require(part.state is PartState.WAITING, f"attempt {attempt.id} is {part.state} on {body.node} already")
    part.state = PartState.PREPARED
    if attempt.ending is None and not attempt.committed_us:
        ready = all(part.state is PartState.PREPARED for part in attempt.parts)
        attempt.state = AttemptState.PREPARED if ready else AttemptState.PREPARING


def prepare_failed(state: State, event: Event, body: events.AttemptPrepareFailed) -> None:
    """One node holds nothing of it and says why: its share is free, the fault is the job's to explain."""
    job, attempt, part = _live_part(state, body.attempt, body.node, body.n)
    part.code, part.error = body.code, body.error
    job.faults.append(NodeFault(body.node, body.code, body.error, event.t_us))
    _end_part(state, attempt, part, event.t_us)


def committed(state: State, event: Event, body: events.AttemptCommitted) -> None:
    """The gang may run."""
    _, attempt = live(state, body.attempt)
    _require(attempt.committed_us == 0 and attempt.ending is None, f"attempt {attempt.id} can't be committed")
    attempt.state, attempt.committed_us = AttemptState.COMMITTED, event.t_us


def started(state: State, event: Event, body: events.AttemptStarted) -> None:
    """One node's ranks have pids; the attempt runs when all nodes' do."""
    job, attempt, part = _live_part(state, body.attempt, body.node, body.n)
    _require(bool(attempt.committed_us or attempt.ending), f"attempt {attempt.id} was never committed")
    _require(
        part.state in (PartState.WAITING, PartState.PREPARED),
        f"attempt {attempt.id} is {part.state} on {body.node} already",
    )
    first = not job.begun
    part.state, part.started, part.pids, part.started_us = PartState.STARTED, True, body.pids, event.t_us
    if not attempt.started_us:
        attempt.started_us = event.t_us
        state.set_ends(attempt)
    job.faults = []  # it can be prepared after all: earlier failures were the nodes'
    if first:
        dependencies.begun(state, job, event.t_us)
    if attempt.ending is None and all(part.state is PartState.STARTED for part in attempt.parts):
        attempt.state, job.state = AttemptState.RUNNING, JobState.RUNNING


# --- the way down ---------------------------------------------------------------------------------------------


def rank_failed(state: State, event: Event, body: events.AttemptRankFailed) -> None:
    """The first failure on one node."""
    _, attempt, part = _live_part(state, body.attempt, body.node, body.n)
    _require(part.failure is None, f"attempt {attempt.id} has a first failure on {body.node} already")
    part.failure = RankFailure(body.node, body.result, body.tail)


def ending(state: State, event: Event, body: events.AttemptEnding) -> None:
    """The gang is told to end; the first cause stands, a later order may only shorten the grace."""
    job, attempt = live(state, body.attempt)
    if attempt.ending is None:
        attempt.ending = Ending(body.cause, body.order, event.t_us, body.detail)
    elif body.order.grace_s < attempt.ending.order.grace_s:
        attempt.ending.order = body.order
    job.state = JobState.ENDING
    if attempt.state is not AttemptState.RELEASING:
        attempt.state = AttemptState.ENDING


def stuck(state: State, event: Event, body: events.AttemptStuck) -> None:
    """A process is left that can't be ended: the share stays taken."""
    _, _, part = _live_part(state, body.attempt, body.node, body.n)
    part.state, part.error = PartState.STUCK, body.error


def part_ended(state: State, event: Event, body: events.AttemptPartEnded) -> None:
    """One node has proof that nothing is left: its share is free."""
    _, attempt, part = _live_part(state, body.attempt, body.node, body.n)
    part.started = part.started or body.started
    part.results, part.cause, part.tail = body.results, body.cause, body.tail
    part.error = body.error or part.error
    if body.presumed:
        node = state.nodes[body.node]
        node.presumed = [*node.presumed, attempt.id][-PRESUMED_KEPT:]
    _end_part(state, attempt, part, event.t_us)


def _end_part(state: State, attempt: Attempt, part: Part, t_us: int) -> None:
    part.state, part.ended_us = PartState.ENDED, t_us
    attempt.state = AttemptState.RELEASING
    state.free_part(attempt, part.placement)


def attempt_ended(state: State, event: Event, body: events.AttemptEnded) -> None:
    """All parts are proved gone: limits and port are free, a summary stays with the job."""
    job, attempt = live(state, body.attempt)
    _require(
        all(part.state is PartState.ENDED for part in attempt.parts), f"{attempt.id} is not gone everywhere"
    )
    placements = attempt_placements(attempt)
    state.limits.release(state.scope(job), amounts(state, placements))
    state.count_use(state.scope(job), event.t_us)
    if state.hours is not None:
        state.hours.end(attempt, event.t_us)
    if attempt.master_port:
        state.free_port(attempt.master_address, attempt.master_port)
    summary = AttemptSummary(
        number=attempt.id.number,
        cause=body.cause,
        placements=placements,
        allocated_us=attempt.allocated_us,
        started_us=attempt.started_us,
        ended_us=event.t_us,
        exit_code=body.exit_code,
        detail=body.detail,
        first_failed=first_failure(attempt),
    )
    job.past = [*job.past, summary][-PAST_KEPT:]
    if body.retry_class:
        job.failures[body.retry_class] = job.failures.get(body.retry_class, 0) + 1
    job.attempt, job.state = None, JobState.ENDING
    for placement in placements:
        if state.nodes[placement.node].instance:
            state.nodes[placement.node].idle_us = event.t_us
        settle(state, placement.node)


def first_failure(attempt: Attempt) -> RankFailure | None:
    """The failure that came first by the nodes' clocks; ties go to the first node of the gang."""
    failures = [part.failure for part in attempt.parts if part.failure is not None]
    return min(failures, key=lambda failure: failure.result.ended_us, default=None)


# --- orphans --------------------------------------------------------------------------------------------------


def orphaned(state: State, event: Event, body: events.AttemptOrphaned) -> None:
    """A node holds what the ledger does not know; its last word on it counts."""
    attempt, node = body.holding.attempt, state.nodes[body.node]
    state.orphans.pop((attempt, node.name), None)
    state.orphans[(attempt, node.name)] = Orphan(attempt, node.name, body.holding, event.t_us)


def orphan_gone(state: State, event: Event, body: events.AttemptOrphanGone) -> None:
    """It is listed no more."""
    key = (body.attempt, body.node)
    _require(key in state.orphans, f"{body.node} has no orphan {body.attempt}")
    del state.orphans[key]
    node = state.nodes.get(body.node)
    if node is not None:
        node.presumed = [attempt for attempt in node.presumed if attempt != body.attempt]


def recovered(state: State, event: Event, body: events.AttemptRecovered) -> None:
    """An orphan becomes the live attempt of its job, which is made anew if it was forgotten."""
    attempt_id = body.attempt
    job = state.jobs.get(attempt_id.job)
    if job is None:
        job = state.jobs[attempt_id.job] = Job(
            attempt_id.job, body.spec, body.owner, body.submitted_us, body.submitted_us
        )
        job.from_nodes = body.held_on is not None
        state.next_job = max(state.next_job, job.id + 1)
        dependencies.recovered(state, job, body.array, body.array_index)
        state.open_scope(job)
    else:
        _require(job.attempt is None and job.attempts < attempt_id.number, f"{attempt_id} is known already")
        if job.state is JobState.WAITING:
            state.dequeue(job)
        dependencies.free(state, job)
    first = not job.begun
    job.hold, job.attempts, job.state = None, attempt_id.number, JobState.RUNNING
    job.attempt = _recovered_attempt(event, body)
    state.hold_attempt(job, job.attempt, runs=True)
    state.count_use(state.scope(job), event.t_us)
    if first and job.begun:
        dependencies.begun(state, job, event.t_us)
    for node in state.nodes:
        state.orphans.pop((attempt_id, node), None)


def _recovered_attempt(event: Event, body: events.AttemptRecovered) -> Attempt:
    """A node that does not say that it holds it must not start it: others' word is no reason to."""
    parts = [Part(placement) for placement in body.placements]
    for part in parts:
        part.started = body.held_on is not None and part.placement.node not in body.held_on
        if part.placement.node in body.started_on:
            part.state, part.started, part.started_us = PartState.STARTED, True, event.t_us
    return Attempt(
        id=body.attempt,
        parts=parts,
        state=AttemptState.RUNNING,
        allocated_us=event.t_us,
        master_address=body.master_address,
        master_port=body.master_port,
        time_limit_s=body.time_limit_s,
        committed_us=event.t_us,
        started_us=(body.started_us or event.t_us) if body.started_on else 0,
    )
