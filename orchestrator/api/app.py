"""The application: routes, their documentation, and errors of the framework in the one form.

Comes in: a hub. Goes out: the ASGI application, with the gate in front. Called by: serve, openapi, tests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from orchestrator import __version__
from orchestrator.api import agents, applies, archive, cluster, instances, jobs, logs, nodes, tokens, what_if
from orchestrator.api.deps import HubDep, known_queries, problems
from orchestrator.api.documents import openapi, request_body
from orchestrator.api.gate import AGENT_PATH, BODY, TOLD, Gate, Handler, no_route, replayed
from orchestrator.api.hub import Hub
from orchestrator.api.problems import InvalidRequest, NoMethod, respond, respond_internal
from orchestrator.api.submit import submit
from orchestrator.model.errors import GanglineError
from orchestrator.wire import api as wire
from orchestrator.wire.api import PREFIX, ProblemItem

# Answered by the gate itself; FastAPI knows them too, so that they are documented and their paths say what they allow.
QUICK: dict[tuple[str, str], Handler] = {
    ("POST", f"{PREFIX}/jobs"): submit,
    ("GET", AGENT_PATH): archive.get,
    ("POST", f"{AGENT_PATH}/sync"): agents.sync,
    ("POST", f"{AGENT_PATH}/join"): agents.join,
    ("POST", f"{AGENT_PATH}/join-aws"): instances.join,
}
QUICK_BELOW: dict[tuple[str, str], Handler] = {("POST", f"{AGENT_PATH}/reads"): agents.read_answer}

DESCRIPTION = """The queue, the nodes and the ledger of one Gangline cluster.

Send `Authorization: Bearer TOKEN`, or use the Unix socket on the controller's host, where the kernel tells who asks.
Errors are problem documents (RFC 9457) with a stable `code`. Lists are envelopes with `items`; `next` is the cursor of
the page that follows."""


def make_app(hub: Hub) -> Gate:
    """The whole application on one hub."""
    app = make_fastapi()
    app.state.hub = hub
    return Gate(hub, app, QUICK, QUICK_BELOW)


def make_fastapi() -> FastAPI:
    """The routes and their documentation."""
    app = FastAPI(
        title="Gangline",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(known_queries)],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        generate_unique_id_function=lambda route: route.name,
    )
    app.include_router(_quick_routes())
    for room in (jobs, what_if, logs, nodes, cluster, applies, tokens):
        app.include_router(room.router)
    app.add_exception_handler(GanglineError, _refused)
    app.add_exception_handler(Exception, _internal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


# --- the quick routes, as FastAPI sees them --------------------------------------------------------------------------


def _quick_routes() -> APIRouter:
    router = APIRouter()
    router.add_api_route(
        f"{PREFIX}/jobs",
        _through(
            submit, "Submit a job document. Give an Idempotency-Key to be able to send it again safely."
        ),
        methods=["POST"],
        name="submit_job",
        tags=["jobs"],
        status_code=201,
        response_model=wire.JobCreated,
        responses={
            200: {"model": wire.JobCreated, "description": "This key has made this job before."},
            201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "The job."}}},
            **problems(400, 409, 413, 415, 503),
        },
        openapi_extra=request_body("job"),
    )
    router.add_api_route(
        AGENT_PATH,
        _through(archive.get, "The agent's code, as bought nodes fetch it; needs no token."),
        methods=["GET"],
        name="agent_archive",
        tags=["agents"],
        response_class=Response,
        responses={
            200: {"description": "The archive.", "content": {archive.TYPE: {"schema": {"type": "string"}}}},
            304: {"description": "It is the one that `If-None-Match` names."},
            **{status: each for status, each in problems(404).items() if status in (404, 422)},
        },
    )
    for name, handler, body, text in _AGENT_ROUTES:
        router.add_api_route(
            f"{AGENT_PATH}/{name}",
            _through(handler, text),
            methods=["POST"],
            name=f"agent_{name.partition('/')[0].replace('-', '_')}",
            tags=["agents"],
            status_code=204 if body == "bytes" else 200,
            response_class=Response,
            responses=problems(400, 404, 413, 415, 503),
            openapi_extra=request_body(body),
        )
    return router


_AGENT_ROUTES: tuple[tuple[str, Handler, str, str], ...] = (
    ("join", agents.join, "message", "Exchange a join token for the node's own token."),
    (
        "join-aws",
        instances.join,
        "message",
        "Let a bought node in by its instance's signed identity document.",
    ),
    ("sync", agents.sync, "message", "One beat of a node: what it has for what it should have."),
    ("reads/{read}", agents.read_answer, "bytes", "The bytes that a read asked a node for."),
)


def _through(handler: Handler, text: str) -> Callable[..., Awaitable[Response]]:
    """The handler as an endpoint, for requests that come through FastAPI."""

    async def endpoint(request: Request, hub: HubDep) -> Response:
        body = request.scope.get(BODY)
        receive = request.receive if body is None else replayed(body, request.receive)
        return await handler(hub, request.scope, receive)

    endpoint.__doc__ = text
    # FastAPI resolves these names; a closure's are not in the module.
    endpoint.__annotations__ = {"request": Request, "hub": HubDep, "return": Response}
    return endpoint


# --- errors, where FastAPI meets them -------------------------------------------------------------------------------


async def _refused(_: Request, error: Exception) -> Response:
    """An error of ours, from a route."""
    assert isinstance(error, GanglineError)
    return respond(error)


async def _internal(request: Request, error: Exception) -> Response:
    """What nobody foresaw. Starlette raises it again after this answer, for the gate to pass over."""
    request.scope[TOLD] = True
    return respond_internal(error, request.method, request.url.path)


async def _invalid(_: Request, error: Exception) -> Response:
    """A parameter or a body of the wrong shape."""
    assert isinstance(error, RequestValidationError)
    items = tuple(_item(fault) for fault in error.errors())
    return respond(InvalidRequest(items))


def _item(fault: dict[str, Any]) -> ProblemItem:
    where = [str(part) for part in fault["loc"]]
    return ProblemItem(
        path=".".join(where),
        code=f"request.{fault['type'].replace('_', '-')}",
        message=fault["msg"][:1].lower() + fault["msg"][1:],
    )


async def _http(request: Request, error: Exception) -> Response:
    """No such path, or not with that method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return respond(no_route(request.url.path))
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        method = request.method
        return respond(
            NoMethod("request.method", f"{method} is not for {request.url.path}", f"it knows {allowed}"),
            {"Allow": allowed},
        )
    raise error  # nothing here raises others: the gate tells it as an internal error


def _methods(request: Request) -> list[str]:
    """The methods that some route knows for this path."""
    found: dict[str, bool] = {}
    for method in ("GET", "POST", "PUT", "DELETE"):
        scope = dict(request.scope, method=method)
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            found[method] = True
    return list(found)
