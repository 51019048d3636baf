"""apply(state, event): the fold, and the only place where State changes for good.

Comes in: a State and the next event. Goes out: the same State, one event later. Called by: controller (after making
an event, and at start over the tail), simulate, replay.

The fold is strict: an event that the state contradicts is a `LedgerError`, never a guess. Handlers for jobs and
attempts are in apply_jobs, for nodes and the cluster in apply_nodes, for what is bought in apply_capacity, for applies
in apply_changes; here are dispatch and access.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.ledger import apply_capacity, apply_changes, apply_jobs, apply_nodes, events
from orchestrator.ledger.events import Event
from orchestrator.ledger.hours import Month
from orchestrator.ledger.records import Token
from orchestrator.ledger.state import State

Handler = Callable[[State, Event, Any], None]


class LedgerError(ValueError):
    """An event contradicts the state it is applied to: the ledger is damaged, or its writer has a bug."""


def apply(state: State, event: Event) -> None:
    """Fold one event; LedgerError names it if it does not fit, and the state is then worth nothing."""
    if event.seq != state.seq + 1:
        raise LedgerError(f"event {event.seq} follows event {state.seq}: the ledger has a gap")
    try:
        if event.t_us < state.t_us or event.epoch < state.epoch:
            raise ValueError("it is older than the event before it")
        HANDLERS[type(event.body)](state, event, event.body)
    except (ValueError, KeyError) as error:
        problem = f"nothing is known of {error}" if isinstance(error, KeyError) else str(error)
        raise LedgerError(f"event {event.seq} ({event.type}, {event.subject}): {problem}") from error
    state.seq, state.t_us, state.epoch = event.seq, event.t_us, event.epoch


def _controller_started(state: State, event: Event, body: events.ControllerStarted) -> None:
    """Nodes may still go by what the controllers before have given them: by the last one's lease, and by a longer one
    of those before it, if the last one did not outlive that twice."""
    lived_us = event.t_us - state.started_us
    still_s = state.lease_before_s if lived_us < 2 * state.lease_before_s * 1_000_000 else 0
    state.lease_before_s = max(state.lease_s, still_s)
    state.lease_s, state.started_us = body.lease_s, event.t_us


def _restored(state: State, event: Event, body: events.LedgerRestored) -> None:
    state.forgotten_from = state.forgotten_from if state.recovering else state.next_job
    state.recovering = True
    state.next_job = max(state.next_job, body.next_job)
    for job in state.jobs.values():  # what this ledger takes for unstarted may have started after the backup
        for part in job.attempt.parts if job.attempt is not None else ():
            part.started = True


def _recovered(state: State, event: Event, body: events.LedgerRecovered) -> None:
    if not state.recovering:
        raise ValueError("it is not a restored ledger")
    state.recovering, state.forgotten_from = False, 0


def _token_created(state: State, event: Event, body: events.TokenCreated) -> None:
    if body.id in state.tokens:
        raise ValueError(f"token {body.id} exists already")
    state.tokens[body.id] = Token(
        id=body.id,
        sha256=body.sha256,
        role=body.role,
        name=body.name,
        created_us=event.t_us,
        expires_us=body.expires_us,
        key=body.key,
        instance=body.instance,
        address=body.address,
    )
    if body.role == "node" and body.instance:
        apply_nodes.admitted(state, body)


def _token_revoked(state: State, event: Event, body: events.TokenRevoked) -> None:
    del state.tokens[body.id]


def _cluster_applied(state: State, event: Event, body: events.ClusterApplied) -> None:
    if body.digest != state.digest:
        apply_capacity.file_changed(state)
    apply_nodes.cluster_applied(state, event, body)


def _month_began(state: State, event: Event, body: events.MonthBegan) -> None:
    month = Month(body.begin_us, body.ends_us)
    if not month.may_follow(state.month):
        raise ValueError("it is not a month after the one before")
    state.begin_month(month)


HANDLERS: dict[type, Handler] = {
    events.ControllerStarted: _controller_started,
    events.LedgerRestored: _restored,
    events.LedgerRecovered: _recovered,
    events.TokenCreated: _token_created,
    events.TokenRevoked: _token_revoked,
    events.ClusterApplied: _cluster_applied,
    events.MonthBegan: _month_began,
    events.ClusterNamed: apply_capacity.named,
    events.CapacityIntended: apply_capacity.intended,
    events.CapacityLaunched: apply_capacity.launched,
    events.CapacityRefused: apply_capacity.refused,
    events.CapacityProved: apply_capacity.proved,
    events.CapacityReleasing: apply_capacity.releasing,
    events.CapacityGone: apply_capacity.gone,
    events.CapacityReset: apply_capacity.reset,
    events.ApplyStarted: apply_changes.started,
    events.ApplyLeased: apply_changes.leased,
    events.ApplyStepStarted: apply_changes.step_started,
    events.ApplyStepEnded: apply_changes.step_ended,
    events.ApplyEnded: apply_changes.ended,
    events.NodeConfigured: apply_changes.configured,
    events.NodeJoined: apply_nodes.joined,
    events.NodeContact: apply_nodes.contact,
    events.NodeMarked: apply_nodes.marked,
    events.NodeUnmarked: apply_nodes.unmarked,
    events.JobSubmitted: apply_jobs.submitted,
    events.ArrayThrottled: apply_jobs.throttled,
    events.JobHeld: apply_jobs.held,
    events.JobReleased: apply_jobs.released,
    events.JobPrioritized: apply_jobs.prioritized,
    events.JobCancelRequested: apply_jobs.cancel_requested,
    events.JobRequeued: apply_jobs.requeued,
    events.JobEnded: apply_jobs.ended,
    events.AttemptAllocated: apply_jobs.allocated,
    events.AttemptPrepared: apply_jobs.prepared,
    events.AttemptPrepareFailed: apply_jobs.prepare_failed,
    events.AttemptCommitted: apply_jobs.committed,
    events.AttemptStarted: apply_jobs.started,
    events.AttemptRankFailed: apply_jobs.rank_failed,
    events.AttemptEnding: apply_jobs.ending,
    events.AttemptStuck: apply_jobs.stuck,
    events.AttemptPartEnded: apply_jobs.part_ended,
    events.AttemptEnded: apply_jobs.attempt_ended,
    events.AttemptOrphaned: apply_jobs.orphaned,
    events.AttemptOrphanGone: apply_jobs.orphan_gone,
    events.AttemptRecovered: apply_jobs.recovered,
}
