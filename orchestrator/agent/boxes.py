"""Opens the box that a plan names.

Comes in: a plan. Goes out: its `Containment`. Called by: shepherd (living), mop (by the traces of a dead shepherd).
"""

from __future__ import annotations

from orchestrator.agent.containment import CgroupBox, Containment, TreeBox
from orchestrator.agent.plan import Plan
from orchestrator.agent.procfs import Traces
from orchestrator.agent.scope import ScopeBox


def open_box(plan: Plan, traces: Traces | None = None, *, shepherd: int = 0) -> Containment:
    """`shepherd`: this process, if it is the unit's living shepherd."""
    if plan.box.kind == "systemd":
        what = f"Gangline job {plan.attempt.job}, attempt {plan.attempt.number} ({plan.owner.name or 'owner unknown'})"
        return ScopeBox(plan.box, what, shepherd)
    if plan.box.kind == "cgroup2":
        return CgroupBox(plan.box.path, plan.box.home)
    return TreeBox(plan.marker, traces or Traces(), shepherd)
