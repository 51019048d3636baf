"""The routes of tokens.

Comes in: requests with a caller. Goes out: tokens without their secrets; a new secret once. Called by: app.

Admins make any token. Who is logged in on the controller's host may make tokens for their own name, with their own role
at most; a token makes none, so that a stolen one ends when it is revoked.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from orchestrator.api import render_cluster
from orchestrator.api.access import JOIN, Caller, role_of
from orchestrator.api.deps import CallerDep, HubDep, ReaderDep, problems, reply
from orchestrator.api.hub import Hub
from orchestrator.controller import commands
from orchestrator.ledger.records import Token
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Role
from orchestrator.model.errors import InputError, NotFound, Refused
from orchestrator.model.join_line import JoinLine
from orchestrator.wire import api_cluster as wire
from orchestrator.wire.api import PREFIX

router = APIRouter(prefix=PREFIX, tags=["tokens"])

SECRET_PREFIX = "gln_"  # noqa: S105 - so that scanners of secrets find them

_HOST = r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?"

TokenPath = Annotated[str, Path(alias="token", max_length=64, description="Its id, not its secret.")]


def new_secret() -> str:
    """A bearer secret of 256 random bits."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)


def new_id() -> str:
    """A token's id."""
    return f"tok-{secrets.token_hex(6)}"


def sha256_of(secret: str) -> str:
    """What the ledger keeps of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


@router.get("/tokens", response_model=wire.TokenList, responses=problems())
async def list_tokens(hub: HubDep, caller: ReaderDep) -> Response:
    """One's own tokens, or all for operators; without secrets."""
    everyone = caller.has(Role.OPERATOR)
    found = [token for token in hub.view.tokens.values() if everyone or _owns(caller, token)]
    found.sort(key=lambda token: (token.created_us, token.id))
    return reply(wire.TokenList(items=[render_cluster.token(token) for token in found]))


@router.post("/tokens", status_code=201, response_model=wire.TokenCreated, responses=problems())
async def create_token(request: Request, hub: HubDep, caller: CallerDep, body: wire.CreateToken) -> Response:
    """A new token. Its secret is in this answer and nowhere else."""
    _check(caller, body)
    if not re.fullmatch(wire.PRINCIPAL_NAME, body.name) or not body.name.isprintable():
        raise InputError(
            "token.bad-name",
            f"{body.name!r} is no name of a person or a node",
            "write a name as `id -un` prints it; for a join token the node's, or *",
            "name",
        )
    secret, token_id = new_secret(), new_id()
    expires_us = hub.clock.now_us() + body.expires_s * SECOND if body.expires_s else 0
    sha256 = sha256_of(secret)
    await hub.controller.do(
        commands.CreateToken(token_id, sha256, body.role, body.name, caller.by, expires_us)
    )
    await hub.caught_up()
    made = render_cluster.token(hub.view.tokens[sha256])
    line = _join_line(hub, request, secret) if body.role == JOIN else ""
    return reply(wire.TokenCreated(**made.model_dump(), secret=secret, join_line=line), 201)


def _join_line(hub: Hub, request: Request, secret: str) -> str:
    """The secret with the address that the cluster's file says, else the one that was called over TLS; with what the
    controller's certificate is trusted by where it knows that itself."""
    cluster = hub.view.cluster
    url = cluster.controller.address if cluster is not None else ""
    host = request.headers.get("host", "")
    if not url and request.url.scheme == "https" and re.fullmatch(_HOST, host):
        url = f"https://{host}"
    anchor = hub.tls.anchor if hub.tls is not None and url.startswith("https:") else None
    return JoinLine(secret, url.rstrip("/"), anchor.sha256 if anchor is not None else "").text


@router.delete("/tokens/{token}", status_code=204, response_class=Response, responses=problems(404))
async def revoke_token(hub: HubDep, caller: ReaderDep, token: TokenPath) -> Response:
    """The token is worth nothing from now on."""
    mine = any(found.id == token and _owns(caller, found) for found in hub.view.tokens.values())
    if not mine and not caller.has(Role.ADMIN):
        if not caller.has(Role.OPERATOR):  # who may not list it may not learn that it is there
            raise NotFound(
                "token.not-found", f"there is no token {token}", "`gangline token list` has their ids"
            )
        hub.access.require(caller, Role.ADMIN)
    await hub.controller.do(commands.RevokeToken(token, caller.by))
    await hub.caught_up()
    return Response(status_code=204)


def _owns(caller: Caller, token: Token) -> bool:
    return token.name == caller.name and token.role not in (JOIN, "node")


def _check(caller: Caller, asked: wire.CreateToken) -> None:
    if caller.has(Role.ADMIN):
        return
    own = caller.login and asked.name == caller.name and asked.role != JOIN
    if not own or not caller.has(role_of(asked.role)):
        raise Refused(
            "access.token",
            f"{caller.name} may not make a token of role {asked.role} for {asked.name}",
            "admins make tokens; on the controller's host, one's own can be made over the Unix socket",
        )
