"""People's commands into facts.

Comes in: commands, one at a time, each seeing what those before it in the batch have done. Goes out: recorded facts and
a result, or a GanglineError that says why not. Called by: loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.controller import (
    acceptance,
    admission,
    applies,
    capacity_answers,
    capacity_commands,
    commands,
    node_tokens,
    outcome,
    queue_room,
    recover,
    sync,
    waiting_for,
    what_if,
)
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Job, Node, Token
from orchestrator.model.attempt import EndCause, JobState
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import ClusterSpec, SiteKind
from orchestrator.model.errors import (
    Conflict,
    GanglineError,
    InputError,
    NotFound,
    Refused,
    Unauthenticated,
)
from orchestrator.model.job import JobSpec
from orchestrator.model.node import Mark, MarkKind
from orchestrator.model.power import pool_watts
from orchestrator.model.reasons import Reason
from orchestrator.model.standing import pool_prices
from orchestrator.planning.digest import digest_of
from orchestrator.scheduler import refuse

OWN_MARKS = (
    MarkKind.UNPROVED,
    MarkKind.RELEASING,
)  # proof removes the one, the next pass over capacity the other
SPENT_S = 600  # in which a node whose join was answered may ask again: far more than its longest pause between tries


def handle(desk: Desk, command: commands.Command) -> Any:
    """The result of one command; GanglineError if it is refused."""
    return HANDLERS[type(command)](desk, command)


# --- jobs -----------------------------------------------------------------------------------------------------


def submit(desk: Desk, command: commands.Submit) -> commands.Submitted:
    """A job or an array in, unless it can never run, its queue is full, or its key has made one before."""
    state = desk.state
    known = desk.writer.made_by(command.key) if command.key else None
    if known is not None:
        if known.digest == command.digest:
            return commands.Submitted(known.job, repeated=True, tasks=_tasks(command.spec))
        raise Conflict(
            "submit.key-reused",
            f"this Idempotency-Key has submitted another document, as job {known.job}",
            "make a new key for a new job",
        )
    never = refuse.never(state, command.spec, command.owner.name, capacity_commands.shapes(desk))
    if never is not None and not (command.force and refuse.may_wait(never)):
        raise refused(never)
    queue_room.check(state, command.spec.queue, _tasks(command.spec))
    waits = waiting_for.resolve(desk, command.spec)
    body = events.JobSubmitted(
        state.next_job, command.spec, command.owner, command.key, command.digest, waits.open, waits.doom
    )
    desk.writer.submitted(body, command.by)
    return commands.Submitted(body.job, tasks=_tasks(command.spec))


def _tasks(spec: JobSpec) -> int:
    return spec.array.count() if spec.array is not None else 1


def refused(why: Reason) -> Refused:
    """A reason that waiting never takes away, as an error."""
    return Refused(why.code, why.sentence(), why.action())


def cancel(desk: Desk, command: commands.CancelJob) -> None:
    """Wanted gone: at once without an attempt, else by the job's own way to stop."""
    job = _job(desk, command.job)
    if job.attempt is None:
        why = f"cancelled by {command.by}" + (f": {command.why}" if command.why else "")
        outcome.end_job(desk, job, JobState.CANCELLED, 0, why, command.by)
        return
    if job.cancel_why is None:
        desk.writer.job(job.id, events.JobCancelRequested(job.id, command.why), command.by)
    grace = 0 if command.now else job.spec.stop.grace_s
    ending = job.attempt.ending
    if ending is None or grace < ending.order.grace_s:
        outcome.end_attempt(
            desk, job, EndCause.CANCELLED, command.why or "cancelled", grace_s=grace, by=command.by
        )


def hold(desk: Desk, command: commands.HoldJob) -> None:
    """It gets no attempt until it is released."""
    job = _job(desk, command.job)
    if job.state is JobState.HELD:
        return
    if job.attempt is not None:
        raise Conflict(
            "job.has-attempt",
            f"job {job.id} is {job.state}",
            "hold works on waiting jobs; `gangline requeue` ends the attempt and lets it wait again",
        )
    desk.writer.job(job.id, events.JobHeld(job.id, command.why or "held by a person"), command.by)


def release(desk: Desk, command: commands.ReleaseJob) -> None:
    """It waits again."""
    job = _job(desk, command.job)
    if job.state is not JobState.HELD:
        raise Conflict("job.not-held", f"job {job.id} is {job.state}, not held")
    desk.writer.job(job.id, events.JobReleased(job.id), command.by)


def requeue(desk: Desk, command: commands.RequeueJob) -> None:
    """Its attempt ends, and it waits again. Asked for twice before the attempt is over, it is one wish."""
    job = _job(desk, command.job)
    if job.attempt is None:
        raise Conflict("job.no-attempt", f"job {job.id} is {job.state}: there is no attempt to requeue")
    if job.attempt.ending is not None and job.attempt.ending.cause is EndCause.REQUEUED:
        return
    if job.attempt.ending is not None:
        raise Conflict(
            "job.ending", f"job {job.id} is ending already ({job.attempt.ending.cause})", "wait for its end"
        )
    outcome.end_attempt(desk, job, EndCause.REQUEUED, command.why or "requeued", by=command.by)


def prioritize(desk: Desk, command: commands.PrioritizeJob) -> None:
    """Another place among those that wait; it keeps it when its attempt is over and another one follows."""
    job = _job(desk, command.job)
    if job.priority == command.priority:
        return
    if job.attempt is not None:
        raise Conflict(
            "job.has-attempt",
            f"job {job.id} is {job.state}: priority decides about starts",
            "prioritize works on jobs that wait or are held",
        )
    desk.writer.job(job.id, events.JobPrioritized(job.id, command.priority), command.by)


def throttle(desk: Desk, command: commands.ThrottleArray) -> None:
    """Another number of the array's tasks may have an attempt at a time."""
    array = desk.state.arrays.get(command.array)
    if array is None:
        job = _job(desk, command.array)
        raise NotFound("job.no-array", f"job {job.id} is no array", "only arrays have a throttle")
    if array.at_most != command.at_most:
        desk.writer.array(array.id, events.ArrayThrottled(array.id, command.at_most), command.by)


def together(desk: Desk, command: commands.Together) -> tuple[Any, ...]:
    """One result for each; a refusal of one is no reason against the others."""
    results: list[Any] = []
    for each in command.commands:
        try:
            results.append(handle(desk, each))
        except GanglineError as error:
            results.append(error)
    return tuple(results)


def _job(desk: Desk, job_id: int) -> Job:
    job = desk.state.jobs.get(job_id)
    if job is not None:
        return job
    if 0 < job_id < desk.state.next_job:
        raise Conflict("job.ended", f"job {job_id} has ended", f"`gangline job show {job_id}` tells how")
    raise NotFound("job.not-found", f"there is no job {job_id}", "`gangline jobs -a` lists those there are")


# --- the cluster and its nodes --------------------------------------------------------------------------------


def apply_cluster(desk: Desk, command: commands.ApplyCluster) -> None:
    """The wanted cluster. Nothing is recorded if it is the same one, and its hosts are to have the same."""
    capacity_commands.check_uid(desk, command.uid)
    digest = digest_of(command.spec)
    wanted = {one.pool: one.digest for one in command.desired}
    watts = pool_watts(command.spec, desk.elastic.catalog)
    prices = pool_prices(command.spec, desk.elastic.catalog, desk.clock.now_us())
    same = (digest, watts, prices) == (desk.state.digest, desk.state.watts, desk.state.prices)
    if not same or (wanted and wanted != desk.state.recorded):
        known = desk.state.cluster
        if known is not None and known.name != command.spec.name:
            raise Conflict(
                "cluster.other-name",
                f"this controller serves cluster {known.name}, and the spec is of {command.spec.name}",
                "a cluster's name is its identity: use another controller, or the old name",
            )
        capacity_commands.check_sites(desk, command.spec)
        capacity_commands.check_names(desk, command.spec)
        if not command.admin:
            _check_access(known or ClusterSpec(command.spec.name), command)
        body = events.ClusterApplied(command.spec, digest, command.desired, command.commit, watts, prices)
        desk.writer.record(body, "cluster", command.by)
        desk.writer.everything_touched = True
        for node in desk.state.nodes.values():
            acceptance.accept(desk, node)
    if command.uid or any(site.kind is SiteKind.AWS for site in command.spec.sites):
        capacity_commands.name_cluster(desk, commands.NameCluster(command.by, command.uid))


def _check_access(known: ClusterSpec, command: commands.ApplyCluster) -> None:
    """Whoever writes the grants can make an admin, and whoever writes `identity` lets system users run jobs."""
    if (command.spec.access, command.spec.identity) != (known.access, known.identity):
        raise Refused(
            "access.cluster",
            f"{command.by} may change the cluster, but not its `access` or `identity`: that takes the role admin",
            "leave both as they are, or ask an admin to apply it",
        )


def cordon(desk: Desk, command: commands.CordonNode) -> None:
    """No new work here. A drain that is asked for again keeps its first deadline: whoever asks may have been killed."""
    node = _node(desk, command.node)
    now_us = desk.clock.now_us()
    deadline_us = now_us + command.deadline_s * SECOND if command.deadline_s else 0
    for mark in node.marks:
        if deadline_us and mark.kind is command.kind and mark.deadline_us and mark.then is command.then:
            deadline_us = min(deadline_us, mark.deadline_us)
    why = command.why or str(command.kind)
    mark = Mark(command.kind, why, command.by, now_us, deadline_us=deadline_us, then=command.then)
    desk.writer.node(node.name, events.NodeMarked(node.name, mark), command.by)


def uncordon(desk: Desk, command: commands.UncordonNode) -> None:
    """A person says that it is fit again: every mark goes but the one that only proof removes. An apply takes its own
    mark alone."""
    node = _node(desk, command.node)
    for kind in dict.fromkeys(mark.kind for mark in node.marks):
        if kind not in OWN_MARKS and command.kind in (None, kind):
            desk.writer.node(node.name, events.NodeUnmarked(node.name, kind, why="uncordoned"), command.by)


def _node(desk: Desk, name: str) -> Node:
    node = desk.state.nodes.get(name)
    if node is None:
        raise NotFound("node.not-found", f"there is no node {name}", "`gangline nodes` lists those there are")
    return node


# --- access ---------------------------------------------------------------------------------------------------


def create_token(desk: Desk, command: commands.CreateToken) -> None:
    """A token in, by its hash."""
    if command.id in desk.state.tokens:
        raise Conflict("token.exists", f"there is a token {command.id} already")
    body = events.TokenCreated(command.id, command.sha256, command.role, command.name, command.expires_us)
    desk.writer.token(command.id, body, command.by)


def revoke_token(desk: Desk, command: commands.RevokeToken) -> None:
    """A token out."""
    if command.id not in desk.state.tokens:
        raise NotFound(
            "token.not-found", f"there is no token {command.id}", "`gangline token list` has their ids"
        )
    desk.writer.token(command.id, events.TokenRevoked(command.id), command.by)


def join_node(desk: Desk, command: commands.JoinNode) -> None:
    """A node of the spec gets its token. An earlier one of the same node, and the key that went with it, is worth
    nothing from now on."""
    node = _node(desk, command.node)
    if not node.wanted:
        raise InputError("node.not-wanted", f"node {node.name} has been taken out of the cluster")
    by = f"node:{node.name}"
    used = desk.state.tokens.get(command.used)
    if (
        command.used and used is None
    ):  # between its being shown and now: a body may take half a minute to come
        raise Unauthenticated(
            "access.join-spent",
            "this join token was used or revoked meanwhile",
            "an admin makes a new one: `gangline token create --role join`",
        )
    if used is not None and used.key and used.key != command.key:
        raise Unauthenticated(
            "access.join-spent",
            f"this join token has let node {node.name} in with another key pair already",
            "an admin makes a new one: `gangline token create --role join`",
        )
    node_tokens.revoke(desk, node.name, by)
    if used is not None and used.id in desk.state.tokens:
        desk.writer.token(used.id, events.TokenRevoked(used.id), by)
    if used is not None and command.key:
        _spend(desk, used, command.key, by)
    body = events.TokenCreated(command.token_id, command.sha256, "node", node.name, key=command.key)
    desk.writer.token(command.token_id, body, by)


def _spend(desk: Desk, used: Token, key: str, by: str) -> None:
    """The answer may be lost: for a while the same key, and no other, may ask again. A beat of the node ends that."""
    until_us = desk.clock.now_us() + SPENT_S * SECOND
    ends_us = min(used.expires_us, until_us) if used.expires_us else until_us
    body = events.TokenCreated(used.id, used.sha256, used.role, used.name, ends_us, key)
    desk.writer.token(used.id, body, by)
    desk.spent[used.name] = used.id


def query(desk: Desk, command: commands.Query) -> Any:
    """A look at State."""
    return command.look(desk.state)


HANDLERS: dict[type, Callable[[Desk, Any], Any]] = {
    commands.Submit: submit,
    commands.CancelJob: cancel,
    commands.HoldJob: hold,
    commands.ReleaseJob: release,
    commands.RequeueJob: requeue,
    commands.PrioritizeJob: prioritize,
    commands.ThrottleArray: throttle,
    commands.Together: together,
    commands.ApplyCluster: apply_cluster,
    commands.StartApply: applies.start,
    commands.RenewApply: applies.renew,
    commands.StartStep: applies.start_step,
    commands.EndStep: applies.end_step,
    commands.EndApply: applies.end,
    commands.Configured: applies.configured,
    commands.CordonNode: cordon,
    commands.UncordonNode: uncordon,
    commands.CreateToken: create_token,
    commands.RevokeToken: revoke_token,
    commands.JoinNode: join_node,
    commands.AdmitInstance: admission.admit,
    commands.Sync: sync.handle,
    commands.Recover: recover.recover,
    commands.NameCluster: capacity_commands.name_cluster,
    commands.InterruptNode: capacity_commands.interrupt_node,
    commands.ResetCapacity: capacity_commands.reset,
    commands.FactsRead: capacity_answers.facts_read,
    commands.LaunchAnswered: capacity_answers.launch_answered,
    commands.EndAnswered: capacity_answers.end_answered,
    commands.Looked: capacity_answers.looked,
    commands.WhatIf: what_if.answer,
    commands.Query: query,
}
