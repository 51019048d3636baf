"""Connections to a ledger file, every one with the same settings.

Comes in: the file and how it is opened. Goes out: an sqlite3 connection, or an SQLAlchemy engine that makes such.
Called by: the other modules of this room.

Settings and why:
- WAL with synchronous=FULL: one fsync a commit, readers and backups beside the writer.
- busy_timeout: a commit of another process takes milliseconds; a lock held longer is worth an error.
- wal_autocheckpoint, journal_size_limit: see the constants.
- isolation_level None: the driver begins nothing by itself; transactions are begun where they are meant.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from orchestrator.model.errors import Unavailable

NAME = "ledger.db"
BUSY_S = 5.0
# 4 MiB. Some commit pays for a checkpoint (it copies the pages and syncs the ledger's file): 6 to 24 ms with 1,000
# pages, up to 60 with 4,000, 90 with 16,000, at no more events a second (`python -m tests.bench.store`, append/*/max).
CHECKPOINT_PAGES = 1000
# Statements that the driver keeps: inserts into four tables, of up to 64 rows each, and the others.
COMPILED = 512
WAL_LIMIT = 64 * 1024 * 1024  # bytes; after a snapshot or a prune the WAL shrinks back to this

Mode = Literal["rw", "ro"]


def uri(path: Path, **parameters: str) -> str:
    """SQLite's URI of a file; any character may be in the path."""
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    return f"file:{quote(str(path))}?{query}"


def connect(path: Path, mode: Mode, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Open an existing file. Raises sqlite3.Error; Unavailable if the file system can't do WAL.

    Mode "ro" writes nothing, but opens the file like a writer where it may: a connection that SQLite itself takes for
    read-only leaves an empty -wal and -shm behind when it is the last to go.
    """
    connection = sqlite3.connect(
        uri(path, mode="rw"),
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=COMPILED,
    )
    try:
        _set_up(connection, path, mode)
    except BaseException:
        connection.close()
        raise
    return connection


def engine(path: Path, mode: Mode) -> Engine:
    """An engine whose every connection is a new one of `connect`."""
    return create_engine("sqlite://", creator=lambda: connect(path, mode), poolclass=NullPool)


def _set_up(connection: sqlite3.Connection, path: Path, mode: Mode) -> None:
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    if mode == "ro":
        connection.execute("PRAGMA query_only=ON")
        return
    (journal,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if journal != "wal":
        raise Unavailable(
            "ledger.no-wal",
            f"the file system of {path} does not offer what SQLite's write-ahead log needs (mode {journal!r})",
            hint="choose a directory on a local disk",
            path=str(path),
        )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT}")
