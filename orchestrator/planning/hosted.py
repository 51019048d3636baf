"""The controller's own host in a plan: what differs there, and the step that puts it right before all others.

Comes in: a plan of the nodes, and what was seen of the controller's host against what it must have. Goes out: the same
plan with its changes, step and digest. Called by: whoever plans a cluster with `controller.host`.

Changes there are the controller's alone: no node hears of them, and jobs run on while it restarts.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.change import Change, ChangeKind, ChangeSet, PlanStep, Source, StepKind, UpdateClass
from orchestrator.model.host import Desired, Drift, Sight, Step
from orchestrator.planning.desired_controller import CONTROLLER, UNIT
from orchestrator.planning.digest import digest_of_plain
from orchestrator.planning.hosts import PRESENT
from orchestrator.planning.render import differing

STEP = "controller.host"
RESTARTS = "the controller restarts; jobs run on"
QUIET = "nothing restarts"


def apart(sight: Sight) -> tuple[Sight, Sight]:
    """One look at a host that is the controller's and a node: as a node, and as the controller's."""
    own = tuple(one for one in sight.drift if one.role == CONTROLLER)
    others = tuple(one for one in sight.drift if one.role != CONTROLLER)
    return replace(sight, drift=others), replace(sight, drift=own)


def with_controller(plan: ChangeSet, sight: Sight, wanted: Desired) -> ChangeSet:
    """The plan with what the controller's host needs, first."""
    if sight.reached is not Step.DONE or not sight.checked:
        unseen = f"{sight.host}: {sight.error or 'it was not compared'}"
        return replace(plan, unseen=tuple(dict.fromkeys((*plan.unseen, unseen))))
    changes = tuple(_change(sight.host, one, wanted) for one in sight.drift)
    found = [(one.kind, one.name, one.value, one.wanted, one.found) for one in sight.drift]
    steps = (step_of(sight.host),) if changes else ()
    return replace(
        plan,
        observed=digest_of_plain([plan.observed, sight.host, found]),
        changes=(*changes, *plan.changes),
        steps=(*steps, *plan.steps),
    )


def step_of(host: str) -> PlanStep:
    """The role on the host; it ends when the controller answers."""
    return PlanStep(
        STEP, StepKind.CONTROLLER, "it differs from what the file says", "", (host,), (CONTROLLER,)
    )


def _change(host: str, one: Drift, wanted: Desired) -> Change:
    missing = one.value == PRESENT
    return Change(
        path=f"host[{host}].{one.kind}[{one.name}]" + ("" if missing else f".{one.value}"),
        kind=ChangeKind.ADDED if missing or not one.found else ChangeKind.CHANGED,
        cls=UpdateClass.CONTROLLER,
        source=Source.DRIFT,
        old="" if missing else differing(one.value, one.found),
        new=PRESENT if missing else differing(one.value, one.wanted),
        why=RESTARTS if _restarts(one, wanted) else QUIET,
        nodes=(host,),
        roles=(CONTROLLER,),
    )


def _restarts(one: Drift, wanted: Desired) -> bool:
    """Whether healing it starts the controller anew."""
    items = {(item.kind, item.name): item for role in wanted.roles for item in role.items}
    item = items.get((one.kind, one.name))
    return one.name == UNIT or (item is not None and UNIT in item.restarts)
