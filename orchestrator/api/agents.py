"""The agents' routes: join, sync, answers to reads. Plain ASGI: thousands of nodes call them.

Comes in: messages of `model.protocol` as JSON, raw bytes of output. Goes out: the same protocol's answers. Called by:
gate (beside FastAPI), app (the same functions, for the documentation). A node's token speaks for that node alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.types import Receive, Scope

from orchestrator.api import bodies, bounds, tokens
from orchestrator.api.access import ANY_NODE, Caller, agent_of, joiner_of, require_agent, require_joiner
from orchestrator.api.gate import CALLER
from orchestrator.api.hub import Hub
from orchestrator.controller.commands import JoinNode
from orchestrator.controller.reads import LogChunk
from orchestrator.model.codec import CodecError, decode, encode
from orchestrator.model.errors import InputError, NotFound
from orchestrator.model.protocol import InstanceJoin, JoinAnswer, JoinRequest, SyncRequest
from orchestrator.wire.api import MOST_LOG_BYTES

if TYPE_CHECKING:
    from orchestrator.provision.node_keys import NodeKey

_dumps = json.JSONEncoder(separators=(",", ":")).encode  # made once: `json.dumps` makes one a call
M = TypeVar("M", JoinRequest, InstanceJoin, SyncRequest)


async def join(hub: Hub, scope: Scope, receive: Receive) -> Response:
    """A node of the wanted cluster gets its own token; the older one is worth nothing from then on."""
    caller: Caller = scope[CALLER]
    require_joiner(caller)
    request = await message(scope, receive, JoinRequest)
    joiner_of(caller, request.node)
    key = key_of(hub, scope, request.public_key)
    secret = tokens.new_secret()
    used = caller.token if caller.name != ANY_NODE else ""
    shown = key.fingerprint if key is not None else ""
    await hub.controller.do(
        JoinNode(request.node, request.facts, tokens.new_id(), tokens.sha256_of(secret), used, shown)
    )
    return json_of(await let_in(hub, request.node, secret, key))


async def let_in(hub: Hub, node: str, secret: str, key: NodeKey | None) -> JoinAnswer:
    """What a node is answered whose token was recorded; with a certificate for its key, if it has one."""
    await hub.caught_up()  # its first sync must find the token
    cluster, authority = hub.view.cluster, hub.tls.nodes if hub.tls is not None else None
    certificate = authority.sign(node, key) if key is not None and authority is not None else ""
    return JoinAnswer(secret, cluster.name if cluster is not None else "", certificate, node)


def key_of(hub: Hub, scope: Scope, public_key: str) -> NodeKey | None:
    """The node's key; None where it could never show it: it has none, or its connection ends before this server, at
    something that speaks TLS for it."""
    if hub.tls is None or hub.tls.nodes is None or not public_key or scope["scheme"] != "https":
        return None
    from orchestrator.provision.node_keys import read_key  # loaded where there is TLS alone

    return read_key(public_key)


async def sync(hub: Hub, scope: Scope, receive: Receive) -> Response:
    """One beat; the answer is held while there is nothing to say."""
    caller: Caller = scope[CALLER]
    require_agent(caller)
    request = await message(scope, receive, SyncRequest)
    agent_of(caller, request.node)
    with hub.poll(scope):
        return json_of(await hub.controller.sync(request))


async def read_answer(hub: Hub, scope: Scope, receive: Receive) -> Response:
    """The bytes that a read asked for."""
    caller: Caller = scope[CALLER]
    require_agent(caller)
    read_id = scope["path"].rpartition("/")[2]
    size, ended = _size_and_ended(scope)
    data = await bodies.read(scope, receive, MOST_LOG_BYTES)
    if not hub.controller.read_arrived(caller.name, read_id, LogChunk(data, size, ended)):
        raise NotFound("read.gone", "nobody waits for this any more")
    return Response(status_code=204)


async def message(scope: Scope, receive: Receive, kind: type[M], most: int = bodies.MOST_AGENT) -> M:
    """A message of the protocol of at most so many bytes, with every value such as a node can mean."""
    bodies.require_json(scope)
    body = await bodies.read(scope, receive, most)
    try:
        found = decode(kind, bodies.parse(body))
    except CodecError as error:
        raise InputError(
            "protocol.malformed", error.problem, "is the agent newer?", path=error.path
        ) from None
    bounds.check(found, body)
    return found


def _size_and_ended(scope: Scope) -> tuple[int, bool]:
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if sorted(query) != ["ended", "size"] or any(len(values) != 1 for values in query.values()):
        raise InputError("request.bad-query", "expected size=BYTES&ended=0|1, each once", path="query")
    size, ended = query["size"][0], query["ended"][0]
    if ended not in ("0", "1"):
        raise InputError("request.bad-query", "expected 0 or 1", path="query.ended")
    if not size.removeprefix("-").isdecimal() or len(size) > 16 or int(size) < -1:
        raise InputError("request.bad-query", "expected bytes, or -1 for nothing kept", path="query.size")
    return int(size), ended == "1"


def json_of(message: Any) -> Response:
    """The plain form of a message as an answer."""
    return Response(_dumps(encode(message)), media_type="application/json")
