"""What agents report of attempts, into facts.

Comes in: numbered events of an outbox, holdings of an inventory. Goes out: recorded facts, and through outcome what
follows from them. Called by: sync, recover.

Each report is checked against the state, never trusted to come once or in order: what the state has already, or an
attempt that is not alive, makes no fact and is acknowledged all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from orchestrator.controller import outcome
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Attempt, Job, Node, Orphan, Part
from orchestrator.model.attempt import EndCause, PartState
from orchestrator.model.ids import AttemptId
from orchestrator.model.node import Mark, MarkKind
from orchestrator.model.protocol import AgentEvent, EventKind, Holding


def take(desk: Desk, node: Node, event: AgentEvent) -> None:
    """One numbered event; facts only for what the state does not have yet."""
    if event.n <= max(desk.acked.get(node.name, 0), node.acked):
        return
    found = live_part(desk, event.attempt, node.name)
    if found is not None:
        job, attempt, part = found
        TAKERS[event.kind](desk, job, attempt, part, event)
    elif event.kind is EventKind.ENDED:
        orphan_ended(desk, node, event)
    desk.acked[node.name] = event.n


def live_part(desk: Desk, attempt_id: AttemptId, node: str) -> tuple[Job, Attempt, Part] | None:
    """The node's share of a live attempt, if it has not ended there."""
    job = desk.state.jobs.get(attempt_id.job)
    if job is None or job.attempt is None or job.attempt.id != attempt_id:
        return None
    part = job.attempt.part(node)
    if part is None or part.state is PartState.ENDED:
        return None
    return job, job.attempt, part


def orphan_ended(desk: Desk, node: Node, event: AgentEvent) -> None:
    """The node's last word on an orphan: kept for who takes it back, if there is anything to take back."""
    orphan = orphan_of(desk, event.attempt, node.name)
    if orphan is None or orphan.holding.ended is not None:
        return
    body: Any = events.AttemptOrphaned(node.name, replace(orphan.holding, ended=event))
    if is_over(desk, event.attempt):
        body = events.AttemptOrphanGone(event.attempt, node.name)
    desk.writer.node(node.name, body, f"node:{node.name}")
    welcome(desk, node, event.attempt)


def orphan_of(desk: Desk, attempt: AttemptId, node: str) -> Orphan | None:
    """What is listed of that attempt on that node."""
    return desk.state.orphans.get((attempt, node))


def is_over(desk: Desk, attempt: AttemptId) -> bool:
    """Whether the ledger has seen the end of that attempt, or of its whole job: there is nothing to take back."""
    job = desk.state.jobs.get(attempt.job)
    return attempt.number <= job.attempts if job is not None else desk.writer.is_over(attempt.job)


def stranger(desk: Desk, node: Node, attempt: AttemptId) -> None:
    """Its devices may be in use although the ledger does not say so: no new work there."""
    why = f"attempt {attempt} runs here, and the ledger does not know it"
    mark = Mark(MarkKind.DRAINING, why, "controller", desk.clock.now_us(), attempt.job, attempt)
    desk.writer.node(node.name, events.NodeMarked(node.name, mark))


def welcome(desk: Desk, node: Node, attempt: AttemptId) -> None:
    """The mark of a stranger goes: it is known now, or gone."""
    if any(mark.kind is MarkKind.DRAINING and mark.attempt == attempt for mark in node.marks):
        body = events.NodeUnmarked(node.name, MarkKind.DRAINING, attempt.job, "it is known now, or gone")
        desk.writer.node(node.name, body)


def catch_up(desk: Desk, node: Node, holding: Holding) -> None:
    """Bring a known attempt to where the node's journal has it: what a restored ledger has missed."""
    found = live_part(desk, holding.attempt, node.name)
    if found is None:
        return
    job, attempt, part = found
    if holding.started and part.state in (PartState.WAITING, PartState.PREPARED):
        _start_missed(desk, job, attempt, part)
    if holding.ended is not None:
        take_ended(desk, node.name, holding.ended)


def _start_missed(desk: Desk, job: Job, attempt: Attempt, part: Part) -> None:
    _commit_missed(desk, job, attempt)
    desk.writer.job(job.id, events.AttemptStarted(attempt.id, part.placement.node), _by(part))


def _commit_missed(desk: Desk, job: Job, attempt: Attempt) -> None:
    """It runs, so it was committed: by a ledger of which this one is an older copy."""
    if not attempt.committed_us and attempt.ending is None:
        desk.writer.job(job.id, events.AttemptCommitted(attempt.id))


def take_ended(desk: Desk, node: str, event: AgentEvent) -> None:
    """An end that comes by another way than the outbox: ENDED, or a preparation that failed."""
    found = live_part(desk, event.attempt, node)
    if found is not None:
        job, attempt, part = found
        TAKERS[event.kind](desk, job, attempt, part, event)


def _by(part: Part) -> str:
    return f"node:{part.placement.node}"


def _prepared(desk: Desk, job: Job, attempt: Attempt, part: Part, event: AgentEvent) -> None:
    if part.state is not PartState.WAITING:
        return
    node = part.placement.node
    desk.writer.job(job.id, events.AttemptPrepared(attempt.id, node, event.n), _by(part))
    ready = all(part.state is PartState.PREPARED for part in attempt.parts)
    if ready and attempt.ending is None and not attempt.committed_us:
        desk.writer.job(job.id, events.AttemptCommitted(attempt.id))


def _prepare_failed(desk: Desk, job: Job, attempt: Attempt, part: Part, event: AgentEvent) -> None:
    body = events.AttemptPrepareFailed(
        attempt.id, part.placement.node, event.code or "unknown", event.error, event.n
    )
    desk.writer.job(job.id, body, _by(part))
    desk.writer.touched_nodes[part.placement.node] = True
    outcome.part_is_gone(desk, job)


def _started(desk: Desk, job: Job, attempt: Attempt, part: Part, event: AgentEvent) -> None:
    if part.state in (PartState.STARTED, PartState.STUCK):
        return
    _commit_missed(desk, job, attempt)
    body = events.AttemptStarted(attempt.id, part.placement.node, event.pids, event.n)
    desk.writer.job(job.id, body, _by(part))


def _rank_failed(desk: Desk, job: Job, attempt: Attempt, part: Part, event: AgentEvent) -> None:
    if part.failure is not None or not event.results:
        return
    body = events.AttemptRankFailed(attempt.id, part.placement.node, event.results[0], event.tail, event.n)
    desk.writer.job(job.id, body, _by(part))
    if attempt.ending is None:
        grace = desk.settings.failure_grace_s
        outcome.end_attempt(desk, job, EndCause.RANK_FAILED, "", grace_s=grace)


def _stuck(desk: Desk, job: Job, attempt: Attempt, part: Part, event: AgentEvent) -> None:
    """Its devices stay taken, and the node drains with the reason."""
    node = part.placement.node
    if part.state is not PartState.STUCK or part.error != event.error:
        desk.writer.job(job.id, events.AttemptStuck(attempt.id, node, event.error, event.n), _by(part))
    why = f"attempt {attempt.id} can't be ended: {event.error}"
    if any(mark.kind is MarkKind.DRAINING and mark.why == why for mark in desk.state.nodes[node].marks):
        return
    mark = Mark(MarkKind.DRAINING, why, _by(part), desk.clock.now_us(), job.id, attempt.id)
    desk.writer.node(node, events.NodeMarked(node, mark), _by(part))


def _ended(desk: Desk, job: Job, attempt: Attempt, part: Part, event: AgentEvent) -> None:
    node = part.placement.node
    was_stuck = part.state is PartState.STUCK
    cause = (
        event.cause if event.cause in ("", EndCause.NODE_FAILED, EndCause.FENCED) else EndCause.NODE_FAILED
    )
    body = events.AttemptPartEnded(
        attempt=attempt.id,
        node=node,
        started=event.started,
        results=event.results,
        cause=str(cause),
        error=event.error,
        tail=event.tail,
        n=event.n,
    )
    desk.writer.job(job.id, body, _by(part))
    desk.writer.touched_nodes[node] = True
    if was_stuck:
        body_unmark = events.NodeUnmarked(node, MarkKind.DRAINING, job.id, "its processes are gone")
        desk.writer.node(node, body_unmark)
    outcome.part_is_gone(desk, job)


Taker = Callable[[Desk, Job, Attempt, Part, AgentEvent], None]
TAKERS: dict[EventKind, Taker] = {
    EventKind.PREPARED: _prepared,
    EventKind.PREPARE_FAILED: _prepare_failed,
    EventKind.STARTED: _started,
    EventKind.RANK_FAILED: _rank_failed,
    EventKind.STUCK: _stuck,
    EventKind.ENDED: _ended,
}
