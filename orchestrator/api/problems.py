"""Errors as RFC 9457 problem documents: one form for every failure.

Comes in: a GanglineError, or what went wrong inside. Goes out: a response. Called by: gate and app. No traceback leaves
the server; the log has it under the request id that the answer names.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from starlette.responses import Response

from orchestrator.model.errors import GanglineError, InputError, Unauthenticated, Unavailable
from orchestrator.spec import InvalidDocument
from orchestrator.wire.api import Problem, ProblemItem

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1

log = logging.getLogger("gangline.api")


class BadRequest(InputError):
    """The request can't be read at all."""

    http_status = 400


class TooSlow(InputError):
    """The request did not arrive in time."""

    http_status = 408


class TooLarge(InputError):
    """The body, or a part of it, is larger than anything that makes sense here."""

    http_status = 413


class WrongType(InputError):
    """The body is of a type that is not read here."""

    http_status = 415


class NoMethod(InputError):
    """The path exists and does not know this method."""

    http_status = 405


class InvalidRequest(InputError):
    """Several faults at once; `items` has each with its place."""

    def __init__(self, items: tuple[ProblemItem, ...]) -> None:
        first = items[0]
        more = f" (and {len(items) - 1} more)" if len(items) > 1 else ""
        super().__init__(first.code, first.message + more, first.hint, first.path)
        self.items = items


def problem_of(error: GanglineError) -> Problem:
    """The document that tells an error."""
    status = error.http_status
    return Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=error.message,
        code=error.code,
        hint=error.hint,
        path=error.path,
        errors=_items(error),
    )


def respond(error: GanglineError, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that tells an error."""
    extra = dict(headers or {})
    if isinstance(error, Unauthenticated):
        extra["WWW-Authenticate"] = 'Bearer realm="gangline"'
    if isinstance(error, Unavailable):
        extra["Retry-After"] = str(RETRY_AFTER_S)
    return _response(problem_of(error), extra)


def respond_internal(error: BaseException, method: str, path: str) -> Response:
    """The answer to what nobody foresaw: the log gets the traceback, the caller a number to find it by."""
    request_id = secrets.token_hex(8)
    log.error("request %s failed: %s %s", request_id, method, path, exc_info=error)
    found = Problem(
        title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
        status=500,
        detail="the server failed at this request",
        code="server.internal",
        hint=f"its log has the details under {request_id}",
        request_id=request_id,
    )
    return _response(found, {})


def _response(found: Problem, headers: Mapping[str, str]) -> Response:
    return Response(found.model_dump_json(), found.status, headers, MEDIA_TYPE)


def _items(error: GanglineError) -> list[ProblemItem]:
    if isinstance(error, InvalidRequest):
        return list(error.items)
    if isinstance(error, InvalidDocument):
        return list(_document_items(error))
    return []


def _document_items(error: InvalidDocument) -> Iterable[ProblemItem]:
    for fault in error.errors:
        yield ProblemItem(
            path=fault.path,
            line=fault.line,
            column=fault.column,
            code=fault.code,
            message=fault.message,
            hint=fault.hint,
        )
