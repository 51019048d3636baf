"""What becomes of a bought node: proved, told to leave, gone.

Comes in: facts of nodes, answers of clouds, the notices that nodes and people pass on. Goes out: recorded facts. Called
by: capacity (once a cycle, and for decisions), capacity_answers (looks), capacity_commands (people's word), sync (what
a node's cloud has told it).
"""

from __future__ import annotations

from orchestrator.controller import node_tokens, outcome
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Bought, Fleet, Node
from orchestrator.model.attempt import EndCause, PartState
from orchestrator.model.capacity import billed_s
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import DrainThen
from orchestrator.model.node import Contact, Mark, MarkKind

# Before an instance is taken back: until then its agent must have told that the work is over.
LAST_WORDS_S = 10
# A capacity block's instances are ended by AWS from half an hour before its end on.
BLOCK_LEAD_S = 1800 + 600
NOT_YET = (MarkKind.UNPROVED, MarkKind.CHANGED)


def prove(desk: Desk) -> None:
    """Nodes that joined, answer and were accepted, and are not being ended, are what was asked for."""
    for fleet in desk.state.fleets.values():
        for one in fleet.instances:
            node = desk.state.nodes.get(one.node)
            if one.proved_us or one.releasing_us or node is None or node.facts is None:
                continue
            if node.contact is Contact.OK and not any(mark.kind in NOT_YET for mark in node.marks):
                body = events.CapacityProved(fleet.intent.id, one.id)
                desk.writer.capacity(fleet.intent.id, body)
                desk.writer.touched_nodes[node.name] = True


def releasing(desk: Desk, body: events.CapacityReleasing, by: str = "controller") -> None:
    """Record that instances are being ended; their nodes look different from now on."""
    fleet = desk.state.fleets[body.intent]
    desk.writer.capacity(body.intent, body, by)
    for one in fleet.instances:
        if one.id in body.instances:
            desk.writer.touched_nodes[one.node] = True


def gone(desk: Desk, fleet: Fleet, one: Bought, why: str) -> None:
    """The cloud says so, or has not told of it for long: that is proof that nothing of any attempt runs there. So gangs
    end, and name and money are free."""
    node = desk.state.nodes[one.node]
    for job in list(desk.state.jobs.values()):
        attempt = job.attempt
        part = attempt.part(node.name) if attempt is not None else None
        if attempt is None or part is None or part.state is PartState.ENDED:
            continue
        error = f"its instance {one.id} is gone: {why}"
        body = events.AttemptPartEnded(
            attempt.id, node.name, part.started, cause=str(EndCause.NODE_FAILED), error=error
        )
        desk.writer.job(job.id, body)
        outcome.part_is_gone(desk, job)
    _close_door(desk, node)
    ended_us = max(desk.clock.now_us(), one.launched_us)
    seconds = billed_s(one.launched_us, ended_us)
    body_gone = events.CapacityGone(fleet.intent.id, one.id, ended_us, seconds, why)
    desk.writer.touched_nodes[node.name] = True
    desk.writer.capacity(fleet.intent.id, body_gone)


def _close_door(desk: Desk, node: Node) -> None:
    """The next instance of that name is another machine: it gets a token of its own, and its own journal counts."""
    node_tokens.revoke(desk, node.name, "controller", unspent=True)
    for table in (desk.told, desk.wants_inventory):
        table.pop(node.name, None)
    desk.acked.pop(node.name, None)
    desk.spent.pop(node.name, None)


def launched_for(desk: Desk, one: Bought) -> int:
    """Seconds since it was launched."""
    return (desk.clock.now_us() - one.launched_us) // SECOND


def interrupt(desk: Desk, node: Node, at_us: int, why: str, by: str) -> None:
    """The instance ends at `at_us` (UTC microseconds): no new work, and what runs is told to end in its own way while
    there is time. That is no failure of the job, which waits again."""
    mark = Mark(MarkKind.DRAINING, why, by, desk.clock.now_us(), deadline_us=at_us, then=DrainThen.CHECKPOINT)
    desk.writer.node(node.name, events.NodeMarked(node.name, mark), by)
    left_s = max((at_us - desk.clock.now_us()) // SECOND - LAST_WORDS_S, 0)
    for job in list(desk.state.jobs.values()):
        attempt = job.attempt
        if attempt is not None and attempt.part(node.name) is not None and attempt.ending is None:
            grace_s = min(left_s, job.spec.stop.grace_s)
            outcome.end_attempt(desk, job, EndCause.REQUEUED, f"{node.name}: {why}", grace_s=grace_s, by=by)


def end_blocks(desk: Desk) -> None:
    """Capacity blocks end at a known time: their nodes are interrupted before the cloud takes them."""
    now_us = desk.clock.now_us()
    for fleet in list(desk.state.fleets.values()):
        ends_us = fleet.intent.ends_us
        if not ends_us or now_us < ends_us - BLOCK_LEAD_S * SECOND:
            continue
        for one in fleet.instances:
            node = desk.state.nodes[one.node]
            if not one.releasing_us and not any(mark.kind is MarkKind.DRAINING for mark in node.marks):
                at_us = ends_us - (BLOCK_LEAD_S - 600) * SECOND
                interrupt(desk, node, at_us, "its capacity block ends", "controller")
