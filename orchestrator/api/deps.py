"""What routes ask FastAPI for: the hub, the caller, queries without unknown parameters; and how they answer.

Comes in: a request that the gate has let in. Goes out: arguments of routes, responses. Called by: the routes.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from orchestrator.api.access import Caller
from orchestrator.api.gate import CALLER
from orchestrator.api.hub import Hub
from orchestrator.api.problems import InvalidRequest
from orchestrator.model.cluster import Role
from orchestrator.wire.api import Problem, ProblemItem
from orchestrator.wire.faults import did_you_mean, shown


async def hub_of(request: Request) -> Hub:
    """The hub of the application."""
    hub: Hub = request.app.state.hub
    return hub


async def caller_of(request: Request) -> Caller:
    """Who asks."""
    caller: Caller = request.scope[CALLER]
    return caller


HubDep = Annotated[Hub, Depends(hub_of)]
CallerDep = Annotated[Caller, Depends(caller_of)]


async def reader_of(hub: HubDep, caller: CallerDep) -> Caller:
    """Someone who may look."""
    hub.access.require(caller, Role.READ)
    return caller


async def operator_of(hub: HubDep, caller: CallerDep) -> Caller:
    """Someone who may change the cluster."""
    hub.access.require(caller, Role.OPERATOR)
    return caller


ReaderDep = Annotated[Caller, Depends(reader_of)]
OperatorDep = Annotated[Caller, Depends(operator_of)]


async def known_queries(request: Request) -> None:
    """InvalidRequest for a parameter that the route does not have, or one given twice."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = [field.alias for field in route.dependant.query_params]
    given = [name for name, _ in request.query_params.multi_items()]
    items = [_unknown(name, known) for name in dict.fromkeys(given) if name not in known]
    items += [_twice(name) for name in dict.fromkeys(given) if name in known and given.count(name) > 1]
    if items:
        raise InvalidRequest(tuple(items))


def _unknown(name: str, known: list[str]) -> ProblemItem:
    hint = did_you_mean(name, known) or (f"known: {', '.join(sorted(known))}" if known else "it has none")
    return ProblemItem(
        path="query", code="request.unknown-parameter", message=f"unknown parameter {shown(name)}", hint=hint
    )


def _twice(name: str) -> ProblemItem:
    return ProblemItem(
        path=f"query.{name}",
        code="request.repeated-parameter",
        message=f"the parameter {name!r} is there twice",
        hint="give it once",
    )


def reply(model: BaseModel, status: int = 200) -> Response:
    """The answer with a model as its body, without FastAPI's second look at it."""
    return Response(model.model_dump_json(), status, media_type="application/json")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Documents the errors of a route; every route that asks for a caller has 401, 403 and 422 besides."""
    return {status: {"model": Problem} for status in (401, 403, 422, *statuses)}
