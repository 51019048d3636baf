"""Output of jobs: which node holds a rank's bytes, and the bytes.

Comes in: a job, a rank, a range. Goes out: raw bytes, with their size and whether more will come in headers. Called by:
app. Output may hold secrets: it is for the job's owner and operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from orchestrator.api.deps import CallerDep, HubDep, problems
from orchestrator.api.jobs import JobPath
from orchestrator.api.render import first_ranks
from orchestrator.controller.view import JobView
from orchestrator.model.cluster import Role
from orchestrator.model.errors import NotFound
from orchestrator.model.ids import AttemptId
from orchestrator.wire import api as wire

router = APIRouter(prefix=wire.PREFIX, tags=["jobs"])

_HEADERS: dict[str, Any] = {
    wire.SIZE_HEADER: {"description": "Bytes that there are now.", "schema": {"type": "integer"}},
    wire.ENDED_HEADER: {
        "description": "1: no more will come.",
        "schema": {"type": "string", "enum": ["0", "1"]},
    },
    wire.NODE_HEADER: {"description": "Who holds them.", "schema": {"type": "string"}},
    wire.ATTEMPT_HEADER: {"description": "Number of the attempt.", "schema": {"type": "integer"}},
}
_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


@router.get(
    "/jobs/{job}/logs",
    response_class=Response,
    responses={200: {"description": "The bytes.", "headers": _HEADERS, **_BYTES}, **problems(404, 503)},
)
async def get_logs(  # noqa: PLR0913 - one argument for each query parameter
    request: Request,
    hub: HubDep,
    caller: CallerDep,
    job: JobPath,
    rank: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    offset: Annotated[int, Query(ge=0, le=2**53 - 1, description="Bytes from the beginning.")] = 0,
    limit: Annotated[
        int, Query(ge=1, le=wire.MOST_LOG_BYTES, description="At most so many bytes.")
    ] = 262_144,
    wait: Annotated[
        int, Query(ge=0, le=wire.MOST_WAIT_S, description="Seconds to wait for some to appear.")
    ] = 0,
    attempt: Annotated[
        int, Query(ge=0, le=2**53 - 1, description="Number of the attempt; 0: the newest.")
    ] = 0,
) -> Response:
    """Bytes of one rank's output, from the node that holds it."""
    view = await hub.named(job)
    await hub.access.require_job(caller, view.owner.name, view.spec.queue, Role.READ)
    number, node = _place(view, rank, attempt)
    with hub.poll(request.scope):
        chunk = await hub.controller.read_log(node, AttemptId(view.id, number), rank, offset, limit, wait)
    headers = {
        wire.SIZE_HEADER: str(chunk.size),
        wire.ENDED_HEADER: "1" if chunk.ended else "0",
        wire.NODE_HEADER: node,
        wire.ATTEMPT_HEADER: str(number),
    }
    return Response(chunk.data, 200, headers, "application/octet-stream")


def _place(view: JobView, rank: int, attempt: int) -> tuple[int, str]:
    """The attempt's number and the node of the rank. NotFound."""
    number, parts = _gang(view, attempt)
    tasks = [count for _, count in parts]
    for (node, count), first in zip(parts, first_ranks(tasks), strict=True):
        if first <= rank < first + count:
            return number, node
    raise NotFound(
        "logs.no-rank",
        f"attempt {view.id}/{number} has no rank {rank}",
        f"its ranks go from 0 to {sum(tasks) - 1}",
    )


def _gang(view: JobView, attempt: int) -> tuple[int, list[tuple[str, int]]]:
    """The attempt's number, and its nodes with their ranks, in gang order."""
    live = view.attempt
    if live is not None and attempt in (0, live.number):
        return live.number, _pairs((part.node, part.tasks) for part in live.parts)
    for past in reversed(view.past):
        if attempt in (0, past.number):
            return past.number, _pairs((found.node, found.tasks) for found in past.placements)
    if attempt:
        raise NotFound("logs.no-attempt", f"nothing is known of attempt {view.id}/{attempt}")
    raise NotFound(
        "logs.not-started", f"job {view.id} has not started yet", f"`gangline explain {view.id}` tells why"
    )


def _pairs(parts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return list(parts)
