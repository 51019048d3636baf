"""What went wrong with the ledger's file, in words: SQLite's and the system's errors as Gangline's own.

Comes in: an exception of sqlite3, SQLAlchemy or the operating system, the file, what was being done. Goes out:
Unavailable (asking again may help), Damaged (it won't), each with a stable code, the path, a hint. Called by: every
module of this room.

    ledger.disk-full  ledger.locked  ledger.read-only  ledger.permission  ledger.io  Unavailable
    ledger.damaged                                                                   Damaged
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from orchestrator.model.errors import GanglineError, Unavailable

# Below this many free bytes an error that SQLite calls something else is taken for a full disk: its shared memory file
# grows by 32 KiB, and a failed growth is reported as an I/O error, or the file as one that can't be opened.
NEARLY_FULL = 64 * 1024

_BUGS = (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.NotSupportedError)
_FULL_ERRNO = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED_ERRNO = frozenset({errno.EACCES, errno.EPERM})


class Damaged(GanglineError, ValueError):
    """The ledger's content can't be trusted or read; a ValueError, as the store's contract says of `tail`."""


def damaged(path: Path, problem: str) -> Damaged:
    """The error for a ledger that only a backup can replace."""
    return Damaged(
        "ledger.damaged",
        f"the ledger {path} is damaged: {problem}",
        hint="put a backup back with `gangline server restore`; the damaged file is kept aside",
        path=str(path),
    )


@contextmanager
def reported(path: Path, doing: str) -> Iterator[None]:
    """Turn errors of the engine and the file system within into Gangline's; `doing` completes "can't ...".

    A bug's errors (a wrong statement, a key used twice) stay what they are.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error, OSError) as error:
        if isinstance(_inner(error), _BUGS):
            raise
        raise explain(error, path, doing) from error


def explain(error: BaseException, path: Path, doing: str) -> GanglineError:
    """The error to show for one of sqlite3's, SQLAlchemy's or the system's."""
    inner = _inner(error)
    return _MAKERS[_kind(inner, path)](path, doing, str(inner))


def free_bytes(path: Path) -> int:
    """Bytes that an ordinary process may still write to the file system under `path`; -1 if it can't be asked."""
    for place in (path, *path.parents):
        try:
            stat = os.statvfs(place)
        except OSError:
            continue
        return stat.f_bavail * stat.f_frsize
    return -1


def _inner(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _kind(error: BaseException, path: Path) -> str:
    if isinstance(error, OSError):
        return _kind_of_errno(error.errno)
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return "damaged"  # the driver's own: a text that is no UTF-8
    primary = code & 0xFF  # the rest is the extended code
    if primary in _KIND_OF_CODE:
        return _KIND_OF_CODE[primary]
    if 0 <= free_bytes(path) < NEARLY_FULL:
        return "full"
    return "permission" if primary == sqlite3.SQLITE_CANTOPEN else "io"


def _kind_of_errno(number: int | None) -> str:
    if number in _FULL_ERRNO:
        return "full"
    if number in _DENIED_ERRNO:
        return "permission"
    return "read-only" if number == errno.EROFS else "io"


_KIND_OF_CODE = {
    sqlite3.SQLITE_ERROR: "damaged",  # a table or a column is not there
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_PERM: "permission",
    sqlite3.SQLITE_AUTH: "permission",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}


def _full(path: Path, doing: str, detail: str) -> GanglineError:
    return Unavailable(
        "ledger.disk-full",
        f"can't {doing} {path}: {detail} ({free_bytes(path)} bytes free)",
        hint=f"nothing was written; work goes on when there is room on the file system of {path.parent}",
        path=str(path),
    )


def _locked(path: Path, doing: str, detail: str) -> GanglineError:
    return Unavailable(
        "ledger.locked",
        f"can't {doing} {path}: another process holds it for too long ({detail})",
        hint=f"see who has it open: fuser -v {path}",
        path=str(path),
    )


def _read_only(path: Path, doing: str, detail: str) -> GanglineError:
    return Unavailable(
        "ledger.read-only",
        f"can't {doing} {path}: it can't be written to ({detail})",
        hint=f"check the modes of {path.parent} and what is in it, and whether its file system is mounted read-only",
        path=str(path),
    )


def _permission(path: Path, doing: str, detail: str) -> GanglineError:
    return Unavailable(
        "ledger.permission",
        f"can't {doing} {path}: {detail}",
        hint=f"run as the owner of {path.parent}, or check that the path exists and its modes allow it",
        path=str(path),
    )


def _io(path: Path, doing: str, detail: str) -> GanglineError:
    return Unavailable(
        "ledger.io",
        f"can't {doing} {path}: {detail} ({free_bytes(path)} bytes free)",
        hint="look for errors of the disk in the kernel's log (dmesg)",
        path=str(path),
    )


_MAKERS: dict[str, Callable[[Path, str, str], GanglineError]] = {
    "full": _full,
    "locked": _locked,
    "read-only": _read_only,
    "permission": _permission,
    "io": _io,
    "damaged": lambda path, _doing, detail: damaged(path, detail),
}
