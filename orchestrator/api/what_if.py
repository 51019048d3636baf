"""The route that tells what would come of a job.

Comes in: a job document as JSON, of a person who may submit it. Goes out: where it would start now, of an array how
many tasks, or why it would be refused or wait. Called by: app. Nothing is submitted.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from orchestrator.api import bodies, render
from orchestrator.api.deps import CallerDep, HubDep, problems, reply
from orchestrator.api.documents import request_body
from orchestrator.api.gate import BODY
from orchestrator.controller import commands
from orchestrator.ledger.capacity import WHOLE
from orchestrator.model.cluster import Role
from orchestrator.model.decisions import Start
from orchestrator.model.job import JobSpec
from orchestrator.scheduler.what_if import Outlook
from orchestrator.spec import job_from_document
from orchestrator.wire import api_cluster as wire
from orchestrator.wire.api import PREFIX

router = APIRouter(prefix=PREFIX, tags=["jobs"])


@router.post(
    "/what-if",
    response_model=wire.WhatIf,
    responses=problems(400, 413, 415),
    openapi_extra=request_body("question"),
)
async def what_if(request: Request, hub: HubDep, caller: CallerDep) -> Response:
    """Whether a job would start now, and where; else why not. Nothing is submitted."""
    hub.access.require(caller, Role.SUBMIT)
    bodies.require_json(request.scope)
    body: bytes = request.scope.get(BODY, b"")
    spec = job_from_document(bodies.parse(body))
    owner = await hub.access.owner_for(caller, spec.queue)
    found: Outlook = await hub.controller.do(commands.WhatIf(spec, owner))
    return reply(_shown(found, spec))


def _shown(found: Outlook, spec: JobSpec) -> wire.WhatIf:
    why, array = found.why, spec.array is not None
    return wire.WhatIf(
        starts=bool(found.starts),
        refused=why is not None and why.code.startswith("never."),
        array_tasks=found.tasks if array else 0,
        tried=found.tried if array else 0,
        starting=len(found.starts) if array else 0,
        nodes=_nodes(found.starts, spec, array),
        time_limit_s=found.starts[0].time_limit_s if found.starts else 0,
        reason=render.reason(why) if why is not None else None,
    )


def _nodes(starts: tuple[Start, ...], spec: JobSpec, array: bool) -> list[wire.WhatIfNode]:
    """What they get of each node, together; nodes in the order in which they come up. A node has one group of a job and
    may have different ones of the tasks of an array."""
    groups = {} if array else {part.node: part.group for start in starts for part in start.placements}
    shares: dict[str, dict[int, int]] = {}  # node -> slot -> thousandths
    instances: dict[str, list[str]] = {}
    counts: dict[str, list[int]] = {}  # node -> ranks, cores, starts
    for start in starts:
        for part in start.placements:
            of_node = shares.setdefault(part.node, {})
            for slot, milli in zip(part.slots, part.milli or (WHOLE,) * len(part.slots), strict=True):
                of_node[slot] = of_node.get(slot, 0) + milli
            instances.setdefault(part.node, []).extend(map(str, part.instances))
            known = counts.setdefault(part.node, [0, 0, 0])
            counts[part.node] = [known[0] + part.tasks, known[1] + part.cores, known[2] + 1]
    return [
        _node(
            name,
            shares[name],
            instances[name],
            *counts[name],
            array=array,
            group=render.group_name(spec, groups[name]) if groups else "",
        )
        for name in shares
    ]


def _node(
    name: str,
    shares: dict[int, int],
    instances: list[str],
    tasks: int,
    cores: int,
    times: int,
    *,
    array: bool,
    group: str,
) -> wire.WhatIfNode:
    slots = sorted(shares)
    milli = [shares[slot] for slot in slots]
    return wire.WhatIfNode(
        node=name,
        devices=slots,
        milli=milli if any(share != WHOLE for share in milli) else [],
        instances=instances,
        tasks=tasks,
        cores=cores,
        array_tasks=times if array else 0,
        group=group,
    )
