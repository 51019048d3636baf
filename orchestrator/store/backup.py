"""Backups of a ledger and their proof.

Comes in: a ledger or a backup. Goes out: one new file; what a file holds, or Damaged with the place. Called by: the
store, restore, cli `server backup`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model.clock import Clock, SystemClock
from orchestrator.model.errors import NotFound
from orchestrator.store import connect, rows
from orchestrator.store.copy import copy_ledger
from orchestrator.store.faults import Damaged, damaged, reported
from orchestrator.store.lock import LedgerLock
from orchestrator.store.schema import Schema, refuse_unusable


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds: its first and last event (0: none), the newest one's time, its own time as a backup."""

    first: int
    last: int
    last_us: int
    backup_us: int
    epoch: int
    cluster: str


def backup(state: Path, target: Path, clock: Clock | None = None) -> None:
    """Copy the ledger in a state directory, whoever works on it, into the new file `target`.

    NotFound without a ledger, Conflict if the target exists, Unavailable if either can't be read or written.
    """
    source = state / connect.NAME
    require(source, f"there is no ledger in {state}")
    require(target.parent, f"there is no folder {target.parent}")
    lock = LedgerLock(state)
    try:
        lock.share()
        backup_file(source, target, (clock or SystemClock()).now_us())
    finally:
        lock.close()


def backup_file(source: Path, target: Path, now_us: int) -> None:
    """The same for a caller who holds the lock."""
    copy_ledger(source, target, backup_us=now_us)


def verify(path: Path, schema: Schema | None = None) -> Contents:
    """Prove a ledger or a backup: SQLite's integrity check, then every event in order, then the snapshots.

    Damaged with the place; GanglineError `ledger.newer`; NotFound; Unavailable if it can't be read.
    """
    require(path, f"there is no file {path}")
    with reported(path, "read"), closing(connect.connect(path, "ro")) as connection:
        refuse_unusable(connection, path, schema or Schema())
        _check_pages(connection, path)
        first, last, last_us = _check_events(connection, path)
        _check_segments(connection, path)
        _check_snapshots(connection, path, first, last)
        _check_applied(connection, path)
        row = connection.execute("SELECT backup_us, epoch, cluster FROM meta").fetchone()
    return Contents(first, last, last_us, *row)


def require(path: Path, sentence: str) -> None:
    """NotFound unless `path` is there."""
    if not path.exists():
        raise NotFound("ledger.not-found", sentence, hint="check the path", path=str(path))


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    problems = [text for (text,) in connection.execute("PRAGMA integrity_check(3)")]
    if problems != ["ok"]:
        raise damaged(path, "; ".join(problems))
    if connection.execute("PRAGMA foreign_key_check").fetchone():
        raise damaged(path, "a job's record has no job")


def _check_events(connection: sqlite3.Connection, path: Path) -> tuple[int, int, int]:
    first = last = last_us = 0
    for row in connection.execute(rows.EVENTS_IN_ORDER):
        first = first or row[0]
        event = rows.read_event(row, path, last or row[0] - 1)
        if event.t_us < last_us:
            raise damaged(path, f"event {event.seq} is older than the one before it")
        last, last_us = event.seq, event.t_us
    return first, last, last_us


def _check_segments(connection: sqlite3.Connection, path: Path) -> None:
    """Each day begins where its first event is, and no day is left out."""
    listed = connection.execute("SELECT day, first_seq FROM segments ORDER BY first_seq").fetchall()
    found = connection.execute(
        "SELECT date(t_us / 1000000, 'unixepoch') AS day, min(seq) FROM events GROUP BY day ORDER BY 2"
    ).fetchall()
    if listed != found:
        raise damaged(path, "its list of days does not fit its events")


def _check_snapshots(connection: sqlite3.Connection, path: Path, first: int, last: int) -> None:
    """One damaged snapshot is passed over at start; but events that were pruned must be in one that is whole."""
    whole = []
    for row in connection.execute("SELECT seq, t_us, version, checksum, body FROM snapshots"):
        try:
            whole.append(rows.unpack_snapshot(row, path).seq)
        except Damaged:
            continue
    if first > 1 and not any(first - 1 <= seq <= last for seq in whole):
        raise damaged(path, f"events before {first} were pruned, and no snapshot of them is whole")


def _check_applied(connection: sqlite3.Connection, path: Path) -> None:
    """What was applied can be read; revision 0001 had no table for it."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'applied'").fetchone():
        for row in connection.execute(rows.ALL_APPLIED):
            rows.read_applied(row, path)
