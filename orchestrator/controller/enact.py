"""Decisions into events.

Comes in: what a pass decided. Goes out: recorded facts. Called by: loop, after each pass.

An attempt on one node needs no second phase: it is allocated and committed at once.
"""

from __future__ import annotations

from orchestrator.controller.desk import Desk
from orchestrator.controller.writer import BY_SCHEDULER
from orchestrator.ledger import events
from orchestrator.model.decisions import Decision, Start


def enact(desk: Desk, decisions: tuple[Decision, ...]) -> None:
    """Record every decision, in order."""
    for decision in decisions:
        _start(desk, decision)


def _start(desk: Desk, start: Start) -> None:
    writer, job = desk.writer, start.attempt.job
    body = events.AttemptAllocated(
        attempt=start.attempt,
        placements=start.placements,
        master_address=start.master_address,
        master_port=start.master_port,
        time_limit_s=start.time_limit_s,
    )
    writer.job(job, body, BY_SCHEDULER)
    if len(start.placements) == 1:
        writer.job(job, events.AttemptCommitted(start.attempt), BY_SCHEDULER)
    for part in start.placements:
        writer.touched_nodes[part.node] = True
