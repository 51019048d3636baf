"""Agents' beats into facts.

Comes in: `Sync` commands: a node's facts, its numbered events, what it holds, its inventory. Goes out: recorded facts
and a `SyncReply`. Called by: intake's table.
"""

from __future__ import annotations

from orchestrator.controller import acceptance, instances, recover, reports
from orchestrator.controller.commands import Sync, SyncReply
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Node
from orchestrator.model.errors import NotFound
from orchestrator.model.ids import AttemptId
from orchestrator.model.instance import Ending, EndingKind
from orchestrator.model.node import Contact, MarkKind
from orchestrator.model.protocol import EventKind, SyncRequest


def handle(desk: Desk, command: Sync) -> SyncReply:
    """Fold one beat in; what the answer needs comes back."""
    request = command.request
    node = desk.state.nodes.get(request.node)
    if node is None:
        raise NotFound("node.not-found", f"the cluster has no node {request.node}")
    _forget_spent(desk, node)
    _take_facts(desk, node, request)
    if request.ending is not None:
        _take_ending(desk, node, request.ending)
    for event in request.events:
        reports.take(desk, node, event)
    if request.inventory is not None:
        recover.take_inventory(desk, node, request.inventory)
    _check_held(desk, node, request)
    return SyncReply(
        acked=max(desk.acked.get(node.name, 0), node.acked),
        want_facts=node.facts is None,
        want_inventory=_wants_inventory(desk, node),
        over=_over(desk, node),
    )


def _over(desk: Desk, node: Node) -> tuple[AttemptId, ...]:
    """What the node still holds of attempts that this ledger has ended without its word: another one may run by now.

    Nothing else that is unknown is ever told to end: it may belong to a ledger that this one replaced.
    """
    found = [desk.state.orphans.get((attempt, node.name)) for attempt in dict.fromkeys(node.presumed)]
    return tuple(orphan.attempt for orphan in found if orphan is not None and orphan.holding.ended is None)


def _wants_inventory(desk: Desk, node: Node) -> bool:
    """A restored ledger asks everybody; any ledger asks a node that holds what it does not know."""
    return node.name in desk.wants_inventory or (desk.state.recovering and node.name not in desk.told)


# --- the node itself ------------------------------------------------------------------------------------------


def _take_facts(desk: Desk, node: Node, request: SyncRequest) -> None:
    """Facts, boot or journal changed: a new acceptance. Else, if it was silent: it is back."""
    facts = request.facts or node.facts
    if facts is not None and (facts != node.facts or request.outbox != node.outbox):
        if request.outbox != node.outbox:
            desk.acked.pop(node.name, None)
        desk.writer.node(node.name, events.NodeJoined(node.name, facts, request.outbox), f"node:{node.name}")
        desk.touch_jobs_on(node.name)
        acceptance.compare_hardware(desk, node)
        acceptance.accept(desk, node)
    elif node.contact is not Contact.OK and facts is not None:
        desk.writer.node(node.name, events.NodeContact(node.name, Contact.OK))
        desk.touch_jobs_on(node.name)


def _take_ending(desk: Desk, node: Node, ending: Ending) -> None:
    """Its cloud takes it back: work leaves in its own way, once, however often the node says so. A risk is no end."""
    if ending.kind is not EndingKind.INTERRUPTION or not node.instance or node.releasing:
        return
    by = f"node:{node.name}"
    at_us = ending.ends_us
    if not any(
        mark.kind is MarkKind.DRAINING and mark.by == by and mark.deadline_us == at_us for mark in node.marks
    ):
        instances.interrupt(
            desk, node, at_us, f"its cloud takes it back ({ending.action or 'interruption'})", by
        )


def _forget_spent(desk: Desk, node: Node) -> None:
    """It has its own token, so the join token is worth nothing from now on, for its own key as well."""
    spent = desk.spent.pop(node.name, "")
    if spent in desk.state.tokens:
        desk.writer.token(spent, events.TokenRevoked(spent), f"node:{node.name}")


def _check_held(desk: Desk, node: Node, request: SyncRequest) -> None:
    """Attempts that the node holds and the ledger does not know are asked for, to be listed as orphans."""
    unknown = [attempt for attempt in request.held if reports.live_part(desk, attempt, node.name) is None]
    ended = {event.attempt: True for event in request.events if event.kind is EventKind.ENDED}
    if any(
        attempt not in ended and reports.orphan_of(desk, attempt, node.name) is None for attempt in unknown
    ):
        desk.wants_inventory[node.name] = True
