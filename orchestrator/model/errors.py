"""The tree of Gangline's errors: each has a code, a sentence and a hint, and the exit code it ends a command with.

    GanglineError            1  something failed
    |- InputError            2  a spec, a job or an argument is wrong (the place is in `path`)
    |- Refused               5  a budget, a quota, a policy or access control says no
    |  |- Unauthenticated    5  no token, or one that is not known here
    |- NotFound              1  no such job, node, queue
    |- Conflict              1  the world has moved on: already ended, another epoch, a key used twice
    |- Unavailable           1  the controller, an agent or a disk can't serve now; asking again may help
    |- TimedOut              6  a deadline that the person gave has passed
    |- Fenced                1  a newer controller owns the ledger

Comes in: codes and sentences. Goes out: exceptions that API, client and CLI render alike. Called by: all rooms.
"""

from __future__ import annotations

from typing import ClassVar


class GanglineError(Exception):
    """Base of all errors that people may see. `code` is stable; `message` says what; `hint` what to do."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, code: str, message: str, hint: str = "", path: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.path = path


class InputError(GanglineError):
    """The input can't be meant like that; nothing was done."""

    exit_code = 2
    http_status = 422


class Refused(GanglineError):
    """Understood, and not allowed."""

    exit_code = 5
    http_status = 403


class Unauthenticated(Refused):
    """No token, or one that is not known here."""

    http_status = 401


class NotFound(GanglineError):
    """What was named does not exist."""

    http_status = 404


class Conflict(GanglineError):
    """What was asked does not fit the present state."""

    http_status = 409


class Unavailable(GanglineError):
    """It can't be served now; trying again may help."""

    http_status = 503


class TimedOut(GanglineError):
    """A deadline that the person gave has passed."""

    exit_code = 6
    http_status = 504


class Fenced(GanglineError):
    """A newer controller owns the ledger: this one must stop at once and write nothing more."""

    http_status = 503
