"""Submitting: the route that must be cheap.

Comes in: a job document as JSON. Goes out: the job's id once it is in the ledger. Called by: gate (beside FastAPI), app
(the same function, for the documentation and for tests that go through FastAPI).
"""

from __future__ import annotations

import hashlib

from starlette.responses import Response
from starlette.types import Receive, Scope

from orchestrator.api import bodies
from orchestrator.api.access import Caller
from orchestrator.api.gate import CALLER
from orchestrator.api.hub import Hub
from orchestrator.controller.commands import Submit, Submitted
from orchestrator.model.cluster import Role
from orchestrator.model.errors import InputError
from orchestrator.wire.api import PREFIX

MOST_KEY = 200


async def submit(hub: Hub, scope: Scope, receive: Receive) -> Response:
    """Check, hand over, answer when it is durable: 201, or 200 for a key that has made this job before."""
    caller: Caller = scope[CALLER]
    hub.access.require(caller, Role.SUBMIT)  # before anything is read
    bodies.require_json(scope)
    _no_queries(scope)
    key = _key(bodies.header(scope, b"idempotency-key"))
    document = bodies.parse(await bodies.read(scope, receive, bodies.MOST_BODY))
    text = bodies.canonical(document)
    digest = hashlib.sha256(text).hexdigest()
    force = _force(document)
    spec = hub.specs.read(document, digest, len(text))
    owner = await hub.access.owner_for(caller, spec.queue)
    # A key is its caller's own: nobody can take another's, or learn of it.
    made: Submitted = await hub.controller.do(
        Submit(spec, owner, caller.by, f"{caller.name}:{key}" if key else "", digest, force)
    )
    return _answer(made)


def _force(document: object) -> bool:
    """Takes `force` out of a body: it is a word about the submit, and no part of the job."""
    force = document.pop("force", False) if isinstance(document, dict) else False
    if not isinstance(force, bool):
        raise InputError(
            "spec.wrong-type", "expected true or false", "leave it away, or send true", path="force"
        )
    return force


def _answer(made: Submitted) -> Response:
    """JobCreated, written by hand: three fields."""
    return Response(
        f'{{"id":{made.job},"tasks":{made.tasks},"repeated":{"true" if made.repeated else "false"}}}',
        200 if made.repeated else 201,
        {"Location": f"{PREFIX}/jobs/{made.job}"},
        "application/json",
    )


def _key(text: str) -> str:
    if len(text) > MOST_KEY or not all("!" <= char <= "~" for char in text):
        raise InputError(
            "request.bad-key",
            f"an Idempotency-Key has at most {MOST_KEY} visible ASCII characters",
            "a UUID will do",
            path="header.Idempotency-Key",
        )
    return text


def _no_queries(scope: Scope) -> None:
    if scope["query_string"]:
        raise InputError(
            "request.unknown-parameter",
            "submitting takes no query parameters",
            "put it into the document",
            path="query",
        )
