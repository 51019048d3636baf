"""Answers that are errors, as the exceptions that every room shares.

Comes in: a status and a body. Goes out: a GanglineError with the server's code, sentence, hint and place. Called by:
transport.
"""

from __future__ import annotations

from pydantic import ValidationError

from orchestrator.model.errors import (
    Conflict,
    GanglineError,
    InputError,
    NotFound,
    Refused,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from orchestrator.wire.api import Problem, ProblemItem


class InvalidInput(InputError):
    """An input with several faults; `errors` has each with its place."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code, problem.detail, problem.hint, problem.path)
        self.errors: tuple[ProblemItem, ...] = tuple(problem.errors)


_BY_STATUS: dict[int, type[GanglineError]] = {
    400: InputError,
    401: Unauthenticated,
    403: Refused,
    404: NotFound,
    409: Conflict,
    413: InputError,
    415: InputError,
    422: InputError,
    503: Unavailable,
    504: TimedOut,
}


def error_of(status: int, content_type: str, body: bytes) -> GanglineError:
    """The exception for an answer of 400 and above; one that is not Gangline's keeps its status and first words."""
    problem = _problem(content_type, body)
    if problem is None:
        return _foreign(status, body)
    if problem.errors:
        return InvalidInput(problem)
    kind = _BY_STATUS.get(status, GanglineError)
    hint = problem.hint
    if problem.request_id:
        hint = hint or f"the server's log has more under {problem.request_id}"
    return kind(problem.code, problem.detail, hint, problem.path)


def _problem(content_type: str, body: bytes) -> Problem | None:
    if not content_type.startswith("application/problem+json"):
        return None
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return None


def _foreign(status: int, body: bytes) -> GanglineError:
    """What stands between client and controller, or no controller at all, answered."""
    words = " ".join(body[:200].decode("utf-8", "replace").split())
    kind = Unavailable if status in (502, 503, 504) else GanglineError
    return kind(
        "client.not-gangline",
        f"the answer {status} did not come from a Gangline controller: {words!r}",
        "check the address, and what proxies stand in between",
    )
