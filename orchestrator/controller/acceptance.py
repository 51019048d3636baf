"""Whether a node is what its pool says, and the machine that it was; until then it gets no work.

Comes in: a node with the facts that its agent told. Goes out: recorded facts: its mark `unproved` with the shortfall,
its mark `changed` with what is new, or none. Called by: sync (facts changed), intake (the wanted cluster changed),
outcome (the node came to another pool).
"""

from __future__ import annotations

from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Node
from orchestrator.model.cluster import Acceptance
from orchestrator.model.node import Hardware, Mark, MarkKind, hardware_of


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


def compare_hardware(desk: Desk, node: Node) -> None:
    """A node that came back as another machine, or with GPUs that it did not have, gets no work until a person agrees.
    What is missing is the acceptance's affair; what is as it was again needs nobody's word."""
    if node.facts is None:
        return
    problem = _change(node.hardware, hardware_of(node.facts))
    mark = next((mark for mark in node.marks if mark.kind is MarkKind.CHANGED), None)
    if problem and (mark is None or mark.why != problem):
        body = Mark(MarkKind.CHANGED, problem, "controller", desk.clock.now_us())
        desk.writer.node(node.name, events.NodeMarked(node.name, body))
    elif not problem and mark is not None:
        desk.writer.node(node.name, events.NodeUnmarked(node.name, MarkKind.CHANGED, why="as it was again"))


def _change(known: Hardware, now: Hardware) -> str:
    """What is there now that was not let in; empty if nothing."""
    if known.machine_id and now.machine_id and known.machine_id != now.machine_id:
        return f"another machine: its machine id was {known.machine_id} and is {now.machine_id}"
    new = sorted(set(now.gpus) - set(known.gpus)) if known.gpus else []
    if new:
        gone = sorted(set(known.gpus) - set(now.gpus))
        return f"other GPUs: {', '.join(new)} in place of {', '.join(gone) or 'none'}"
    return ""


def _shortfall(desk: Desk, node: Node) -> str:
    """What the node lacks of what its pool says; empty if nothing."""
    pool = desk.state.pool(node.pool)
    gpu = pool.gpu if pool is not None else None
    if pool is None or node.facts is None or pool.acceptance is Acceptance.SKIP:
        return ""
    if gpu is None:
        return _small(desk, node)
    fitting = [device for device in node.facts.devices if device.model in gpu.models()]
    if len(fitting) >= gpu.count:
        return _small(desk, node)
    found = ", ".join(sorted({device.model for device in node.facts.devices})) or "none"
    wanted = " or ".join(gpu.models())
    return f"{len(fitting)} of {gpu.count} GPUs of model {wanted} found (models here: {found})"


def _small(desk: Desk, node: Node) -> str:
    """What a bought node lacks of the shape that was asked for; empty if nothing, or if it was not bought."""
    fleet = desk.state.fleets.get(desk.state.instances.get(node.instance, ""))
    if fleet is None or node.facts is None:
        return ""
    shape, facts = fleet.intent.shape, node.facts
    if facts.cores < shape.cores or facts.memory < shape.memory:
        gib = 1 << 30
        bought = f"{shape.cores} cores and {shape.memory // gib} GiB bought"
        return f"{facts.cores} cores and {facts.memory // gib} GiB found, {bought}"
    return ""
