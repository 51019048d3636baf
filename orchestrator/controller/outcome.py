"""How attempts end, and what follows for their jobs.

Comes in: a job whose attempt should end, or has ended everywhere. Goes out: recorded facts: the order to end, the
attempt's end, and the job's end, another wait, or a hold. Called by: intake, sync, timers.

The rule for retries is a table: each cause belongs to a class of failures, the job says how many of each it bears, and
a preparation that failed is nobody's failure until it is clear whose.
"""

from __future__ import annotations

from orchestrator.controller import acceptance
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.ends import (
    CANCELLED_CODE,
    RETRY_CLASS,
    WORDS,
    breaking_cause,
    detail_of,
    exit_code,
    may_retry,
)
from orchestrator.ledger.records import Attempt, Job, Node, NodeFault
from orchestrator.model.attempt import EndCause, JobState, PartState
from orchestrator.model.node import Mark, MarkKind
from orchestrator.model.protocol import EndOrder
from orchestrator.scheduler.place import could_fit


def end_attempt(
    desk: Desk, job: Job, cause: EndCause, detail: str, *, grace_s: int | None = None, by: str = "controller"
) -> None:
    """Tell every node of the gang to end it, in the job's own way or with a shorter grace."""
    assert job.attempt is not None
    stop = job.spec.stop
    grace = stop.grace_s if grace_s is None else min(grace_s, stop.grace_s)
    order = EndOrder(str(cause), stop.signal, stop.to, grace)
    desk.writer.job(job.id, events.AttemptEnding(job.attempt.id, cause, order, detail), by)


def part_is_gone(desk: Desk, job: Job) -> None:
    """After a part's end: end the others if the gang is broken, conclude if all are gone."""
    attempt = job.attempt
    assert attempt is not None
    if all(part.state is PartState.ENDED for part in attempt.parts):
        conclude(desk, job, attempt)
    elif attempt.ending is None:
        cause = breaking_cause(attempt)
        if cause is not None:
            end_attempt(desk, job, cause, detail_of(attempt, cause), grace_s=desk.settings.failure_grace_s)


def conclude(desk: Desk, job: Job, attempt: Attempt) -> None:
    """Record the attempt's end, then what follows for the job."""
    cause = attempt.ending.cause if attempt.ending else breaking_cause(attempt) or EndCause.COMPLETED
    detail = (attempt.ending.detail if attempt.ending else "") or detail_of(attempt, cause)
    code = exit_code(attempt, cause)
    retry_class = RETRY_CLASS.get(cause, "")
    moving = [node for node in _nodes_of(desk, attempt) if node.moves_to]
    desk.writer.job(job.id, events.AttemptEnded(attempt.id, cause, code, detail, retry_class))
    desk.writer.touched_nodes.update((part.placement.node, True) for part in attempt.parts)
    for node in moving:
        acceptance.accept(desk, node)
    _follow(desk, job, cause, code, detail)


def _nodes_of(desk: Desk, attempt: Attempt) -> list[Node]:
    return [desk.state.nodes[part.placement.node] for part in attempt.parts]


def end_job(
    desk: Desk, job: Job, state: JobState, code: int = 0, why: str = "", by: str = "controller"
) -> None:
    """Record the job's end. What it says of nodes where it could not be prepared is withdrawn if it never started:
    it is not clear whose fault that was, and a node that is at fault fails the next job too. By its code a cancelled
    job is known to have run: what depends on it asks for that (model/dependency)."""
    if state is JobState.CANCELLED:
        code = (code or CANCELLED_CODE) if job.begun else 0
    if job.attempts and not any(past.started_us for past in job.past):
        _withdraw_all(desk, job.id)
    desk.writer.job(job.id, events.JobEnded(job.id, state, code, why), by)


def _follow(desk: Desk, job: Job, cause: EndCause, code: int, detail: str) -> None:
    writer = desk.writer
    if job.cancel_why is not None:
        why = "cancelled" + (f": {job.cancel_why}" if job.cancel_why else "")
        end_job(desk, job, JobState.CANCELLED, code, why)
    elif cause is EndCause.COMPLETED:
        end_job(desk, job, JobState.SUCCEEDED, code)
    elif cause is EndCause.PREPARE_FAILED:
        _after_failed_preparation(desk, job)
    elif cause is EndCause.REQUEUED:
        writer.job(job.id, events.JobRequeued(job.id, detail or str(cause)))
    elif may_retry(job, cause):
        _wait_again(desk, job, detail or str(cause))
    else:
        why = detail or WORDS.get(cause, str(cause))
        end_job(desk, job, JobState.FAILED, code, why)


def _wait_again(desk: Desk, job: Job, why: str) -> None:
    """Another attempt will follow; of a job that only nodes have told of, not before a person has looked at it."""
    if job.from_nodes:
        held = f"{why}; it was taken back on the word of nodes and starts anew only when it is released"
        desk.writer.job(job.id, events.JobHeld(job.id, held, "from-nodes"))
    else:
        desk.writer.job(job.id, events.JobRequeued(job.id, why))


# --- preparations that failed ---------------------------------------------------------------------------------


def _after_failed_preparation(desk: Desk, job: Job) -> None:
    """Two nodes, or nowhere else to try: the job is at fault, held with the node's error, and the marks against nodes
    go. One node: it is marked, and the job tries another."""
    faults = {fault.node: fault for fault in job.faults}
    last = job.faults[-1]
    if len(faults) >= desk.settings.faulty_nodes or not could_fit(desk.state, job.spec, faults):
        _withdraw_all(desk, job.id)
        why = f"could not be prepared on {', '.join(faults)}: {last.error}"
        desk.writer.job(job.id, events.JobHeld(job.id, why, "prepare-failed"))
        return
    for fault in faults.values():
        _mark(desk, job.id, fault)
    _wait_again(desk, job, f"{last.node}: {last.error}")


def _mark(desk: Desk, job_id: int, fault: NodeFault) -> None:
    node = desk.state.nodes.get(fault.node)
    if node is None or any(
        mark.kind is MarkKind.PREPARE_FAILED and mark.job == job_id for mark in node.marks
    ):
        return
    mark = Mark(
        MarkKind.PREPARE_FAILED, f"job {job_id}: {fault.error}", "controller", desk.clock.now_us(), job_id
    )
    desk.writer.node(node.name, events.NodeMarked(node.name, mark))


def _withdraw_all(desk: Desk, job_id: int) -> None:
    """No node keeps a mark from this job."""
    for node in list(desk.state.nodes.values()):
        if any(mark.kind is MarkKind.PREPARE_FAILED and mark.job == job_id for mark in node.marks):
            body = events.NodeUnmarked(node.name, MarkKind.PREPARE_FAILED, job_id, "the job may be at fault")
            desk.writer.node(node.name, body)
