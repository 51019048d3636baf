"""The routes of applies: the journal of whoever carries a plan out, and what was recorded.

Comes in: requests with a caller. Goes out: the applies of the view. Called by: app.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from orchestrator.api import render_cluster
from orchestrator.api.deps import HubDep, OperatorDep, ReaderDep, problems, reply
from orchestrator.api.hub import Hub
from orchestrator.api.nodes import NodePath, node_reply
from orchestrator.api.render_apply import apply as render
from orchestrator.api.render_apply import record, recorded, recorded_spec, seq_of
from orchestrator.controller import commands
from orchestrator.controller.view import ApplyView
from orchestrator.model.apply import HostResult, Outcome
from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.codec import CodecError, decode
from orchestrator.model.errors import InputError, NotFound
from orchestrator.model.host import HostFacts
from orchestrator.wire import api_apply as wire
from orchestrator.wire import api_cluster
from orchestrator.wire.api import PREFIX

router = APIRouter(prefix=PREFIX, tags=["applies"])

ApplyPath = Annotated[
    str, Path(alias="apply", max_length=64, description="Id of the apply.", examples=["apply-812"])
]
RecordPath = Annotated[
    str, Path(alias="record", max_length=20, description="Name of the record.", examples=["r812"])
]
StepPath = Annotated[str, Path(alias="step", max_length=253, description="Id of the step.")]


@router.get("/applies", response_model=wire.ApplyList, responses=problems())
async def list_applies(hub: HubDep, _: ReaderDep) -> Response:
    """The last applies, newest first, with their steps."""
    return reply(wire.ApplyList(items=[render(view) for view in reversed(hub.view.applies)]))


@router.get("/applies/{apply}", response_model=wire.Apply, responses=problems(404))
async def get_apply(hub: HubDep, _: ReaderDep, apply: ApplyPath) -> Response:
    """One apply."""
    return reply(render(_apply(hub, apply)))


@router.post("/applies", response_model=wire.Apply, status_code=201, responses=problems(409))
async def start_apply(hub: HubDep, caller: OperatorDep, body: wire.StartApply) -> Response:
    """Begin to carry a plan out: nobody else may while the lease lasts. One's own, left open, is given up."""
    steps = tuple(
        PlanStep(
            step.id,
            StepKind(step.kind),
            step.why,
            step.pool,
            tuple(step.nodes),
            tuple(step.roles),
            step.batch,
            step.site,
        )
        for step in body.steps
    )
    if len({step.id for step in steps}) != len(steps):
        raise InputError("apply.step-twice", "two steps have one id", path="body.steps")
    command = commands.StartApply(body.holder, body.digest, steps, body.lease_s, caller.by, body.commit)
    name: str = await hub.controller.do(command)
    await hub.caught_up()
    return reply(render(_apply(hub, name)), 201)


@router.post("/applies/{apply}/lease", response_model=wire.Apply, responses=problems(404, 409))
async def renew_apply(hub: HubDep, caller: OperatorDep, apply: ApplyPath, body: wire.RenewApply) -> Response:
    """Keep the lease for longer."""
    return await _act(hub, apply, commands.RenewApply(apply, body.lease_s, caller.by))


@router.post("/applies/{apply}/steps/{step}/start", response_model=wire.Apply, responses=problems(404, 409))
async def start_step(hub: HubDep, caller: OperatorDep, apply: ApplyPath, step: StepPath) -> Response:
    """A step is about to touch hosts."""
    return await _act(hub, apply, commands.StartStep(apply, step, caller.by))


@router.post("/applies/{apply}/steps/{step}/end", response_model=wire.Apply, responses=problems(404, 409))
async def end_step(
    hub: HubDep, caller: OperatorDep, apply: ApplyPath, step: StepPath, body: wire.EndStep
) -> Response:
    """What a step came to, host by host. Saying it again changes nothing."""
    results = tuple(HostResult(one.host, one.ok, one.error, one.changed) for one in body.hosts)
    return await _act(hub, apply, commands.EndStep(apply, step, body.ok, results, caller.by))


@router.post("/applies/{apply}/end", response_model=wire.Apply, responses=problems(404, 409))
async def end_apply(hub: HubDep, caller: OperatorDep, apply: ApplyPath, body: wire.EndApply) -> Response:
    """It is over; what is left to do, the next plan finds."""
    return await _act(hub, apply, commands.EndApply(apply, Outcome(body.outcome), caller.by, body.detail))


@router.post("/nodes/{node}/configured", response_model=api_cluster.Node, responses=problems(404, 409))
async def configured_node(
    hub: HubDep, caller: OperatorDep, node: NodePath, body: wire.Configured
) -> Response:
    """A host was seen to have all it should."""
    try:
        host = decode(HostFacts, body.host) if body.host is not None else None
    except CodecError as error:
        raise InputError(
            "node.bad-facts", error.problem, path=f"body.host.{error.path}".rstrip(".")
        ) from None
    await hub.controller.do(commands.Configured(node, body.desired, caller.by, host))
    await hub.caught_up()
    return node_reply(hub, node)


@router.get("/recorded", response_model=wire.Recorded, responses=problems())
async def get_recorded(hub: HubDep, _: ReaderDep) -> Response:
    """What was applied last, and what each host was last seen to have: what a plan starts from."""
    anchor = hub.tls.anchor if hub.tls is not None else None
    nodes = render_cluster.nodes_of(hub.view)
    return reply(recorded(hub.view, nodes, anchor.sha256 if anchor is not None else ""))


@router.get("/records", response_model=wire.RecordList, responses=problems())
async def list_records(hub: HubDep, _: ReaderDep) -> Response:
    """What was applied, newest first."""
    rows = await hub.applied()
    newest = rows[0].seq if rows else 0
    return reply(wire.RecordList(items=[record(row, newest) for row in rows]))


@router.get("/records/{record}", response_model=wire.RecordedSpec, responses=problems(404))
async def get_record(hub: HubDep, _: ReaderDep, name: RecordPath) -> Response:
    """What was applied at one time, with its cluster."""
    rows = await hub.applied()
    found = await hub.applied_at(seq_of(name))
    if found is None:
        raise NotFound(
            "record.not-found", f"there is no record {name}", "`gangline history` lists those that are kept"
        )
    return reply(recorded_spec(found, rows[0].seq))


async def _act(hub: Hub, apply: str, command: commands.Command) -> Response:
    _apply(hub, apply)
    await hub.controller.do(command)
    await hub.caught_up()
    return reply(render(_apply(hub, apply)))


def _apply(hub: Hub, name: str) -> ApplyView:
    for view in hub.view.applies:
        if view.id == name:
            return view
    raise NotFound(
        "apply.not-found", f"there is no {name}", "the last applies are kept; `gangline status` names one"
    )
