"""Applies and what was recorded, as the API shows them.

Comes in: the published view. Goes out: models of `wire.api_apply`. Called by: the routes of applies.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.controller.view import ApplyView, NodeView, StepView, View
from orchestrator.model.apply import StepState
from orchestrator.model.codec import encode
from orchestrator.wire import api_apply as wire
from orchestrator.wire.api import time_of
from orchestrator.wire.api_cluster import LastApply


def apply(view: ApplyView) -> wire.Apply:
    """An apply with its steps."""
    return wire.Apply(
        id=view.id,
        holder=view.holder,
        by=view.by,
        commit=view.commit,
        digest=view.digest,
        started_at=time_of(view.started_us),
        lease_until=time_of(view.lease_us),
        ended_at=time_of(view.ended_us),
        outcome=str(view.outcome) if view.outcome is not None else None,
        detail=view.detail,
        steps=[_step(step) for step in view.steps],
    )


def _step(view: StepView) -> wire.Step:
    step = view.step
    return wire.Step(
        id=step.id,
        kind=str(step.kind),
        why=step.why,
        pool=step.pool,
        nodes=list(step.nodes),
        roles=list(step.roles),
        batch=step.batch,
        state=str(view.state),
        started_at=time_of(view.started_us),
        ended_at=time_of(view.ended_us),
        hosts=[
            wire.HostResult(host=one.host, ok=one.ok, error=one.error, changed=one.changed)
            for one in view.hosts
        ],
    )


def last_apply(view: ApplyView, now_us: int) -> LastApply:
    """The newest apply at a glance. A host is pending while any step that names it has not gone well on it."""
    pending: dict[str, None] = {}
    for step in view.steps:
        well = {result.host for result in step.hosts if result.ok}
        pending.update(dict.fromkeys(name for name in step.step.nodes if name not in well))
    return LastApply(
        id=view.id,
        holder=view.holder,
        outcome=str(view.outcome) if view.outcome is not None else None,
        leased=view.outcome is None and view.lease_us > now_us,
        done=sum(step.state is StepState.DONE for step in view.steps),
        total=len(view.steps),
        pending=list(pending),
        detail=view.detail,
    )


def recorded(view: View, nodes: Iterable[NodeView]) -> wire.Recorded:
    """What a plan starts from."""
    nodes = list(nodes)
    return wire.Recorded(
        digest=view.digest,
        commit=view.commit,
        spec=encode(view.cluster) if view.cluster is not None else None,
        pools=dict(view.recorded),
        desired=[encode(one) for one in list(view.desired.values())],
        nodes={node.name: node.configured for node in nodes},
        hosts={node.name: encode(node.host) for node in nodes if node.host is not None},
    )
