"""The routes of the cluster as a whole: what is wanted, how it is, orphans and recovery.

Comes in: requests with a caller; a cluster document, or a checked spec. Goes out: the wanted cluster, its state at a
glance. Called by: app.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from starlette.responses import Response

from orchestrator.api import bodies, render_cluster
from orchestrator.api.deps import HubDep, OperatorDep, ReaderDep, problems, reply
from orchestrator.api.gate import BODY
from orchestrator.api.hub import Hub
from orchestrator.api.problems import WrongType
from orchestrator.api.resolved import cluster_in
from orchestrator.controller import commands
from orchestrator.model.cluster import Role
from orchestrator.model.codec import encode
from orchestrator.model.errors import NotFound, Unavailable
from orchestrator.model.protocol import PROTOCOL
from orchestrator.wire import api_cluster as wire
from orchestrator.wire.api import PREFIX

router = APIRouter(prefix=PREFIX, tags=["cluster"])

RecoverBody = Annotated[wire.Recover, Body(default_factory=wire.Recover)]
PEM = "application/x-pem-file"
_YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")
_DOCUMENT: dict[str, Any] = {
    "description": "A document of `kind: Cluster` (JSON or YAML), or `kind: ClusterSpec` with a checked spec.",
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["apiVersion", "kind"],
                "properties": {
                    "apiVersion": {"const": "gangline/v1"},
                    "kind": {"enum": ["Cluster", "ClusterSpec"]},
                },
            }
        },
        "application/yaml": {"schema": {"type": "string"}},
    },
}


@router.get("/status", response_model=wire.Status, responses=problems())
async def get_status(hub: HubDep, _: ReaderDep) -> Response:
    """The cluster at a glance, and how fresh that is."""
    return reply(render_cluster.status(hub.view, hub.version, hub.clock.now_us()))


@router.get("/cluster", response_model=wire.Cluster, responses=problems(404))
async def get_cluster(hub: HubDep, _: ReaderDep) -> Response:
    """The wanted cluster."""
    return _reply(hub)


@router.put(
    "/cluster",
    response_model=wire.Cluster,
    responses=problems(400, 409, 413, 415),
    openapi_extra={"requestBody": _DOCUMENT},
)
async def put_cluster(request: Request, hub: HubDep, caller: OperatorDep) -> Response:
    """The cluster that is wanted from now on. The same one again changes nothing.

    Its `access` and `identity` are changed by admins only."""
    body: bytes = request.scope.get(BODY, b"")
    kind = bodies.media_type(request.scope)
    if kind not in ("application/json", *_YAML_TYPES):
        raise WrongType(
            "request.content-type",
            f"the body is of type {kind!r}",
            "send application/yaml or application/json",
        )
    sent = cluster_in(body, yaml=kind in _YAML_TYPES)
    admin = caller.has(Role.ADMIN)
    await hub.controller.do(
        commands.ApplyCluster(sent.spec, caller.by, sent.desired, sent.commit, admin=admin)
    )
    await hub.caught_up()
    return _reply(hub)


@router.get("/orphans", response_model=wire.OrphanList, responses=problems())
async def list_orphans(hub: HubDep, _: ReaderDep) -> Response:
    """Attempts on nodes that the ledger does not know."""
    items = [wire.Orphan(attempt=attempt, node=node) for attempt, node in hub.view.orphans]
    return reply(wire.OrphanList(items=items))


@router.post("/recover", response_model=wire.Recovered, responses=problems(409))
async def recover(hub: HubDep, caller: OperatorDep, body: RecoverBody) -> Response:
    """Take orphans back after a restore, and let starts go on."""
    done: commands.RecoverResult = await hub.controller.do(commands.Recover(caller.by, tuple(body.without)))
    left = [wire.Left(attempt=attempt, why=why) for attempt, why in done.left]
    return reply(wire.Recovered(recovered=list(done.recovered), left=left, without=list(done.without)))


@router.get("/version", response_model=wire.Version, responses=problems())
async def get_version(hub: HubDep, _: ReaderDep) -> Response:
    """What answers here."""
    return reply(wire.Version(version=hub.version, agent_protocol=PROTOCOL))


@router.get(
    "/healthz",
    response_model=wire.Health,
    responses={k: v for k, v in problems(503).items() if k in (422, 503)},
)
async def get_health(hub: HubDep) -> Response:
    """Whether the server answers and its controller works; needs no token."""
    if hub.stopping:
        raise Unavailable("controller.stopping", "the controller is stopping")
    return reply(wire.Health())


@router.get(
    "/ca",
    response_class=Response,
    responses={
        200: {"description": "The certificate.", "content": {PEM: {"schema": {"type": "string"}}}},
        **{k: v for k, v in problems(404).items() if k in (404, 422)},
    },
)
async def get_ca(hub: HubDep) -> Response:
    """What this controller's certificate is trusted by, for a node that has its SHA-256 from its join token; needs no
    token."""
    anchor = hub.tls.anchor if hub.tls is not None else None
    if anchor is None:
        raise NotFound(
            "tls.no-ca",
            "this controller has no certificate authority to tell of",
            "whoever calls it by https has to know from elsewhere who signed its certificate",
        )
    return Response(anchor.pem, media_type=PEM)


def _reply(hub: Hub) -> Response:
    spec = hub.view.cluster
    if spec is None:
        raise NotFound(
            "cluster.none", "no cluster has been applied yet", "`gangline up cluster.yaml` applies the first"
        )
    return reply(wire.Cluster(name=spec.name, digest=hub.view.digest, spec=encode(spec)))
