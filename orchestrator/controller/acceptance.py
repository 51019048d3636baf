"""Whether a node is what its pool says; until then it is unproved and gets no work.

Comes in: a node with the facts that its agent told. Goes out: recorded facts: its mark `unproved` with the shortfall,
or none. Called by: sync (facts changed), intake (the wanted cluster changed), outcome (the node came to another pool).
"""

from __future__ import annotations

from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Node
from orchestrator.model.cluster import Acceptance
from orchestrator.model.node import Mark, MarkKind


def accept(desk: Desk, node: Node) -> None:
    """The first acceptance: the GPUs are there, in number and model. Others come with the roles."""
    if node.facts is None:
        return
    problem = _shortfall(desk, node)
    mark = next((mark for mark in node.marks if mark.kind is MarkKind.UNPROVED), None)
    if not problem and mark is not None:
        desk.writer.node(node.name, events.NodeUnmarked(node.name, MarkKind.UNPROVED, why="accepted"))
    elif problem and (mark is None or mark.why != problem):
        body = Mark(MarkKind.UNPROVED, problem, "controller", desk.clock.now_us())
        desk.writer.node(node.name, events.NodeMarked(node.name, body))


def _shortfall(desk: Desk, node: Node) -> str:
    """What the node lacks of what its pool says; empty if nothing."""
    pool = desk.state.pool(node.pool)
    gpu = pool.gpu if pool is not None else None
    if pool is None or gpu is None or node.facts is None or pool.acceptance is Acceptance.SKIP:
        return ""
    fitting = [device for device in node.facts.devices if device.model == gpu.model]
    if len(fitting) >= gpu.count:
        return ""
    found = ", ".join(sorted({device.model for device in node.facts.devices})) or "none"
    return f"{len(fitting)} of {gpu.count} GPUs of model {gpu.model} found (models here: {found})"
