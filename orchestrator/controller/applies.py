"""The journal of applies: who changes the cluster now, and how far each step is.

Comes in: commands of whoever applies. Goes out: recorded facts. Called by: intake.

One apply at a time. Its holder renews a lease; when that has run out, or the same holder begins anew, the next one
gives it up and looks at the hosts again. The journal says what was begun; what came of it only the hosts can say.
"""

from __future__ import annotations

from orchestrator.controller import capacity_tasks, commands
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.apply_changes import open_apply
from orchestrator.ledger.records import Apply, ApplyStep
from orchestrator.model.apply import Outcome, StepState
from orchestrator.model.change import StepKind
from orchestrator.model.clock import SECOND
from orchestrator.model.errors import Conflict, NotFound


def start(desk: Desk, command: commands.StartApply) -> str:
    """A new apply; the one that was left open is given up."""
    found, now_us = open_apply(desk.state), desk.clock.now_us()
    if found is not None:
        if found.holder != command.holder and found.lease_us > now_us:
            raise Conflict(
                "apply.leased",
                f"{found.holder} is applying ({found.id}) since {(now_us - found.started_us) // SECOND} s",
                f"wait for its end; if it has died, its lease ends in {(found.lease_us - now_us) // SECOND + 1} s",
            )
        why = "begun anew" if found.holder == command.holder else f"taken over by {command.holder}"
        _record(desk, events.ApplyEnded(found.id, Outcome.GIVEN_UP, why), command.by)
    name = f"apply-{desk.state.seq + 1}"
    lease_us = now_us + command.lease_s * SECOND
    body = events.ApplyStarted(name, command.holder, command.digest, command.steps, lease_us, command.commit)
    _record(desk, body, command.by)
    return name


def renew(desk: Desk, command: commands.RenewApply) -> None:
    """Its holder is still at it."""
    found = _open(desk, command.id)
    lease_us = desk.clock.now_us() + command.lease_s * SECOND
    _record(desk, events.ApplyLeased(found.id, lease_us), command.by)


def start_step(desk: Desk, command: commands.StartStep) -> None:
    """Before the step touches anything."""
    found = _open(desk, command.id)
    step = _step(found, command.step)
    if step.state is StepState.DONE:
        raise Conflict("apply.step-done", f"step {command.step} of {found.id} is done")
    _record(desk, events.ApplyStepStarted(found.id, command.step), command.by)


def end_step(desk: Desk, command: commands.EndStep) -> None:
    """What it came to. The same word again is nothing new."""
    found = _open(desk, command.id)
    step = _step(found, command.step)
    state = StepState.DONE if command.ok else StepState.FAILED
    if (step.state, step.hosts) == (state, command.hosts):
        return
    if step.state is not StepState.STARTED:
        raise Conflict("apply.step-not-started", f"step {command.step} of {found.id} is {step.state}")
    _record(desk, events.ApplyStepEnded(found.id, command.step, command.ok, command.hosts), command.by)
    if step.step.kind is StepKind.STACK:
        capacity_tasks.doubt_facts(desk, older_s=0)  # what waits for them is bought now, not a minute later


def end(desk: Desk, command: commands.EndApply) -> None:
    """Over."""
    found = _open(desk, command.id)
    _record(desk, events.ApplyEnded(found.id, command.outcome, command.detail), command.by)


def configured(desk: Desk, command: commands.Configured) -> None:
    """What a host was seen to have."""
    node = desk.state.nodes.get(command.node)
    if node is None:
        raise NotFound("node.not-found", f"there is no node {command.node}")
    if command.desired not in desk.state.desired:
        raise Conflict(
            "apply.unknown-desired",
            f"nothing recorded has the digest {command.desired}",
            "the cluster has been changed meanwhile: plan again",
        )
    if (node.configured, node.host) != (command.desired, command.host or node.host):
        body = events.NodeConfigured(node.name, command.desired, command.host)
        desk.writer.node(node.name, body, command.by)


def _record(desk: Desk, body: object, by: str) -> None:
    desk.writer.record(body, "apply", by)
    desk.writer.touched_applies = True


def _open(desk: Desk, name: str) -> Apply:
    found = open_apply(desk.state)
    if found is None or found.id != name:
        raise Conflict(
            "apply.not-open",
            f"{name} is not under way any more" + (f": {found.holder} has {found.id}" if found else ""),
            "run `gangline apply` again; it looks at the hosts first",
        )
    return found


def _step(apply: Apply, name: str) -> ApplyStep:
    for found in apply.steps:
        if found.step.id == name:
            return found
    raise NotFound("apply.no-step", f"{apply.id} has no step {name}")
