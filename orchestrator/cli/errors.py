"""Errors to people and programs: the one place that turns an exception into words on stderr and an exit code.

Comes in: whatever ended the verb. Goes out: text, or one JSON object where `-o json` was asked for, on stderr; the exit
code of DESIGN section 7. Called by: main.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import click

from orchestrator.cli.session import Session
from orchestrator.cli.text import safe_lines
from orchestrator.model.errors import GanglineError, Refused

INTERRUPTED = 130
USAGE = 2


def report(error: BaseException, session: Session) -> int:
    """Say what happened and return the exit code."""
    if isinstance(error, BrokenPipeError):
        return reader_left()
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        _write("\ninterrupted\n" if sys.stderr.isatty() else "interrupted\n")
        return INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        _write(error.format_message() + "\n")
        return USAGE
    if os.environ.get("GANGLINE_DEBUG") and not isinstance(error, click.ClickException):
        _write(traceback.format_exc())
    if isinstance(error, click.ClickException):
        _say(_usage(error), session)
        return USAGE
    if isinstance(error, GanglineError):
        _write_error(error, session)
        return exit_code(error, session)
    _say(_unexpected(error), session)
    return session.failed or 1


def reader_left() -> int:
    """Whoever read our output has closed it (`| head`): that is no error, and nothing more may be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def exit_code(error: GanglineError, session: Session) -> int:
    """The error's own exit code, or the one for commands that return a job's code."""
    if isinstance(error, Refused):
        return session.refused or error.exit_code
    if error.exit_code == USAGE:
        return USAGE
    return session.failed or error.exit_code


def as_json(error: GanglineError) -> dict[str, Any]:
    """An error as a document of its own."""
    return _document(error.code, error.message, error.hint, error.path)


def lines(error: GanglineError) -> str:
    """An error as people read it: place, reason, code; then what to do."""
    place = f"{error.path}: " if error.path else ""
    text = f"error: {place}{error.message} [{error.code}]\n"
    return text + (f"  hint: {error.hint}\n" if error.hint else "")


def _document(code: str, message: str, hint: str, path: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "gangline/v1",
        "kind": "Error",
        "code": code,
        "message": message,
        "hint": hint,
        "path": path,
    }


def _write_error(error: GanglineError, session: Session) -> None:
    found = getattr(error, "errors", None)
    if session.output == "json":
        document = as_json(error)
        if found:
            document["errors"] = [_plain(each) for each in found]
        _write(json.dumps(document) + "\n")
    elif found and all(getattr(each, "file", "") for each in found):
        from orchestrator.spec import render

        _write(render(found) + "\n")
    elif found:  # faults of options, or those that the server found in what was sent: they have no file
        said = [GanglineError(each.code, each.message, each.hint, each.path) for each in found]
        _write(safe_lines("".join(map(lines, said))))
    else:
        _write(safe_lines(lines(error)))


def _plain(found: Any) -> dict[str, Any]:
    """A fault of a document, or of a request, as a record."""
    known: dict[str, Any] = found.to_json() if hasattr(found, "to_json") else found.model_dump(mode="json")
    return known


def _usage(error: click.ClickException) -> GanglineError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "gangline"
    said = error.format_message().partition(". Choose from:")[
        0
    ]  # a list of lines; the argument's name has them too
    return GanglineError("cli.usage", _lower(said).rstrip("."), f"`{path} --help` shows how it is used")


def _unexpected(error: BaseException) -> GanglineError:
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return GanglineError("cli.system", f"{where}{error.strerror or error}", "")
    return GanglineError(
        "cli.internal",
        f"Gangline made a mistake: {type(error).__name__}: {error}",
        "GANGLINE_DEBUG=1 shows where; please report it with that text",
    )


def _say(error: GanglineError, session: Session) -> None:
    if session.output == "json":
        _write(json.dumps(as_json(error)) + "\n")
    else:
        _write(safe_lines(lines(error)))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _write(text: str) -> None:
    """stderr may be closed too; then there is nobody to tell."""
    try:
        sys.stdout.flush()
    except OSError:
        pass
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass
