"""The routes of nodes, GPUs and queues.

Comes in: requests with a caller. Goes out: what the view shows of capacity; cordon and uncordon. Called by: app.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path
from starlette.responses import Response

from orchestrator.api import render_cluster, render_queues, render_topology
from orchestrator.api.access import Caller
from orchestrator.api.asked import Asked
from orchestrator.api.deps import CallerDep, HubDep, ReaderDep, problems, reply
from orchestrator.api.hub import Hub
from orchestrator.controller import commands
from orchestrator.controller.view import NodeView
from orchestrator.model.cluster import DrainThen, Pool
from orchestrator.model.errors import NotFound
from orchestrator.model.node import MarkKind
from orchestrator.wire import api_cluster as wire
from orchestrator.wire.api import PREFIX

router = APIRouter(prefix=PREFIX, tags=["capacity"])

NodePath = Annotated[
    str, Path(alias="node", max_length=253, description="Name of the node.", examples=["h100-01"])
]

CordonNodeBody = Annotated[wire.CordonNode, Body(default_factory=wire.CordonNode)]
UncordonNodeBody = Annotated[wire.UncordonNode, Body(default_factory=wire.UncordonNode)]


@router.get("/nodes", response_model=wire.NodeList, responses=problems())
async def list_nodes(hub: HubDep, _: ReaderDep) -> Response:
    """All nodes, with their devices and why they get no work."""
    pools = render_cluster.pools_of(hub.view.cluster)
    items = [_render(hub, view, pools) for view in render_cluster.nodes_of(hub.view)]
    return reply(wire.NodeList(items=items))


@router.get("/nodes/{node}", response_model=wire.Node, responses=problems(404))
async def get_node(hub: HubDep, _: ReaderDep, node: NodePath) -> Response:
    """One node."""
    return node_reply(hub, node)


@router.post("/nodes/{node}/cordon", response_model=wire.Node, responses=problems(404))
async def cordon_node(hub: HubDep, caller: CallerDep, node: NodePath, body: CordonNodeBody) -> Response:
    """Give a node no new work; what runs goes on, to the end or to a deadline."""
    kind, then = MarkKind(body.kind), DrainThen(body.then)
    command = commands.CordonNode(node, caller.by, body.why, kind, body.deadline_s, then)
    return await _act(hub, caller, node, command)


@router.post("/nodes/{node}/uncordon", response_model=wire.Node, responses=problems(404))
async def uncordon_node(hub: HubDep, caller: CallerDep, node: NodePath, body: UncordonNodeBody) -> Response:
    """Withdraw every mark of a node but those that only the node itself can clear; or those of one kind."""
    kind = MarkKind(body.kind) if body.kind is not None else None
    return await _act(hub, caller, node, commands.UncordonNode(node, caller.by, kind))


@router.get("/gpus", response_model=wire.GpuList, responses=problems())
async def list_gpus(hub: HubDep, _: ReaderDep) -> Response:
    """GPUs by model and pool: how many, how many free, and in which sizes they can be asked for."""
    return reply(wire.GpuList(items=render_cluster.gpus(hub.view, Asked(hub.view))))


@router.get("/topology", response_model=wire.TopologyList, responses=problems())
async def list_topology(hub: HubDep, _: ReaderDep) -> Response:
    """The domains of each level of each site: their nodes, what is free, how large a gang fits now."""
    return reply(wire.TopologyList(items=render_topology.topology(hub.view)))


@router.get("/queues", response_model=wire.QueueList, responses=problems())
async def list_queues(hub: HubDep, _: ReaderDep) -> Response:
    """Queues with their limits, what they use and what waits in them."""
    return reply(wire.QueueList(items=render_queues.queues(hub.view)))


async def _act(hub: Hub, caller: Caller, node: str, command: commands.Command) -> Response:
    await hub.access.require_node(caller, _node(hub, node).pool)
    await hub.controller.do(command)
    await hub.caught_up()
    return node_reply(hub, node)


def node_reply(hub: Hub, name: str) -> Response:
    """The node as an answer. NotFound."""
    return reply(_render(hub, _node(hub, name), render_cluster.pools_of(hub.view.cluster)))


def _render(hub: Hub, view: NodeView, pools: dict[str, Pool]) -> wire.Node:
    return render_cluster.node(view, pools, hub.controller.beats.heard_at_us(view.name))


def _node(hub: Hub, name: str) -> NodeView:
    view = hub.view.nodes.get(name)
    if view is None:
        raise NotFound("node.not-found", f"there is no node {name}", "`gangline nodes` lists those there are")
    return view
