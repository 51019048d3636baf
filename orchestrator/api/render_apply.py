"""Applies and what was recorded, as the API shows them.

Comes in: the published view. Goes out: models of `wire.api_apply`. Called by: the routes of applies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestrator.controller.applied import from_applied
from orchestrator.controller.view import ApplyView, NodeView, StepView, View
from orchestrator.model.apply import StepState
from orchestrator.model.codec import encode
from orchestrator.store.base import AppliedRow
from orchestrator.wire import api_apply as wire
from orchestrator.wire.api import time_of
from orchestrator.wire.api_cluster import LastApply

LONGEST_SEQ = 18  # digits: less than the largest number that the store can look for
RECORD = "r"  # a record's name is this and the seq of its event


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
        site=step.site,
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
        named = (step.step.site, *step.step.nodes) if step.step.site else step.step.nodes
        pending.update(dict.fromkeys(name for name in named if name not in well))
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


def seq_of(name: str) -> int:
    """The seq in a record's name; 0, which none has, for what is no name of one."""
    digits = name.removeprefix(RECORD)
    fits = name.startswith(RECORD) and digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST_SEQ
    return int(digits) if fits else 0


def record(row: AppliedRow, newest: int) -> wire.Record:
    """A record without its cluster; the newest one is current."""
    return wire.Record(**_record(row, newest))


def recorded_spec(row: AppliedRow, newest: int) -> wire.RecordedSpec:
    """A record with its cluster. ValueError if this version can't read it."""
    return wire.RecordedSpec(**_record(row, newest), spec=encode(from_applied(row).spec))


def _record(row: AppliedRow, newest: int) -> dict[str, Any]:
    return {
        "record": f"{RECORD}{row.seq}",
        "at": time_of(row.t_us),
        "by": row.by,
        "commit": row.commit,
        "digest": row.digest,
        "current": row.seq == newest,
    }


def recorded(view: View, nodes: Iterable[NodeView], ca_sha256: str) -> wire.Recorded:
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
        uid=view.uid,
        ca_sha256=ca_sha256,
    )
