"""A consistent copy of a ledger into one new file, beside a live writer.

Comes in: a ledger file, which any process may have open, and the name of the copy. Goes out: the copy: one file, mode
0600, on disk when the call returns, there whole or not at all. Called by: backup, restore, schema (before an upgrade).

SQLite's online backup in a single step: it reads under one snapshot of the WAL, so a writer is neither stopped nor can
it make the copy start over, as it can between smaller steps.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.model.errors import Conflict
from orchestrator.store import connect
from orchestrator.store.faults import reported

PART = ".part"
COMPANIONS = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file


def copy_ledger(source: Path, target: Path, *, backup_us: int) -> None:
    """Copy `source`; `backup_us` (UTC) is written into the copy as its time.

    Conflict if `target` exists; Unavailable if either can't be read or written.
    """
    if os.path.lexists(target):
        raise exists(target)
    part = target.with_name(f"{target.name}.{os.getpid()}{PART}")
    try:
        copy_into(source, part)
        with reported(target, "write"):
            stamp(part, "UPDATE meta SET backup_us = ?", (backup_us,))
            sync_file(part)
            publish(part, target)
    finally:
        discard(part)


def copy_into(source: Path, part: Path) -> None:
    """Copy `source` into the new file `part`, which nobody else knows yet, in the mode of a single file."""
    with reported(part, "write"):
        discard(part)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with reported(source, "read"):
        reading = connect.connect(source, "ro")
    with closing(reading), reported(part, "write"), closing(private(part)) as writing:
        reading.backup(writing)
        # The copy says of itself that it has a WAL; a backup is one file, readable from a read-only medium.
        writing.execute("PRAGMA journal_mode=DELETE")


def discard(part: Path) -> None:
    """Remove a private copy and what SQLite may have left beside it: a stale journal would be played into a new one."""
    for suffix in ("", *COMPANIONS):
        part.with_name(part.name + suffix).unlink(missing_ok=True)


def stamp(part: Path, statement: str, values: tuple[int, ...]) -> None:
    """Run one statement on a private copy."""
    with closing(private(part)) as connection:
        connection.execute(statement, values)


def private(part: Path) -> sqlite3.Connection:
    """A connection to a file of one's own: locks are not asked for (a network file system may have none), and it is
    synced once, at the end, by `sync_file`."""
    connection = sqlite3.connect(part, isolation_level=None)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("PRAGMA synchronous=OFF")
    return connection


def publish(part: Path, target: Path) -> None:
    """Give a synced file its name, unless that is taken: Conflict."""
    try:
        os.link(part, target)  # unlike a rename, it never replaces
    except FileExistsError:
        raise exists(target) from None
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise exists(target) from None
        part.rename(target)
    sync_folder(target.parent)


def sync_file(path: Path) -> None:
    """Bring a file's content to disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to disk; some network file systems refuse that, and have no need of it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def free_name(base: Path, now_us: int) -> Path:
    """`base` with a UTC date and time behind, and a number if that is taken."""
    dated = f"{base}-{datetime.fromtimestamp(now_us // 1_000_000, UTC):%Y%m%dT%H%M%SZ}"
    names = (Path(dated if n == 1 else f"{dated}-{n}") for n in range(1, 1000))
    return next(name for name in names if not os.path.lexists(name))


def exists(target: Path) -> Conflict:
    """The error for a name that is taken."""
    return Conflict(
        "backup.exists",
        f"{target} exists, and a backup replaces nothing",
        hint="name a new file",
        path=str(target),
    )
