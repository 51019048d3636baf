"""Bought nodes come in by what their cloud says they are.

Comes in: an instance's identity document with its signature, from anybody. Goes out: the node's own token, bound to its
key; or a refusal, which is said in the log now and then. Called by: gate.

Checked in this order, so that a stranger learns nothing: the document is signed by its region; account and region are
those of a site; the node has a key; the instance is waited for and has not come with another key
(controller.admission).
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope

from orchestrator.api import agents, tokens
from orchestrator.api.hub import Hub
from orchestrator.controller.commands import AdmitInstance, Admitted
from orchestrator.model.errors import Refused
from orchestrator.model.protocol import InstanceJoin, JoinAnswer

MOST_BYTES = 256 * 1024  # of a message: facts of a node with many devices, a document, a signature


async def join(hub: Hub, scope: Scope, receive: Receive) -> Response:
    """A node that the cluster has bought gets its token."""
    request = await agents.message(scope, receive, InstanceJoin, MOST_BYTES)
    try:
        return agents.json_of(await _admit(hub, scope, request))
    except Refused as error:
        client = scope.get("client") or ("somebody",)
        hub.refusals.warn(error.code, f"{client[0]} was not let in: {error.message} [{error.code}]")
        raise


async def _admit(hub: Hub, scope: Scope, request: InstanceJoin) -> JoinAnswer:
    from orchestrator.provision.aws import identity  # its libraries are for clusters that buy nodes

    found = identity.read(
        request.document, request.signature, hub.accounts.certificates_of, hub.clock.now_us()
    )
    fixed = hub.accounts.fixed(found.account, found.region, found.instance)
    key = agents.key_of(hub, scope, request.public_key)
    if key is None:
        raise Refused(
            "join.no-key",
            "bought nodes are let in with a key pair only, and this connection can carry none",
            "the agent has to call the controller itself, by https",
        )
    secret = tokens.new_secret()
    admitted: Admitted = await hub.controller.do(
        AdmitInstance(
            found.instance,
            fixed.node if fixed is not None else "",
            tokens.new_id(),
            tokens.sha256_of(secret),
            key.fingerprint,
            fixed.address if fixed is not None else "",
        )
    )
    return await agents.let_in(hub, admitted.node, secret, key)
