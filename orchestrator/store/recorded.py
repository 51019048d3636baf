"""A recorded ledger to read through: a state folder's, while its controller works or not, or a backup.

Comes in: a path. Goes out: the snapshot that its events follow, and the events. Called by: cli `replay`. Nothing is
locked, claimed or changed; events that are added meanwhile are read, too, or not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from orchestrator.ledger.events import StoredEvent
from orchestrator.store import connect, rows
from orchestrator.store.backup import require
from orchestrator.store.base import Snapshot
from orchestrator.store.faults import Damaged, damaged, reported
from orchestrator.store.schema import Schema, refuse_unusable


class Recorded:
    """One ledger. Errors: NotFound without a file; Damaged with the place; GanglineError `ledger.newer`;
    Unavailable."""

    def __init__(self, path: Path) -> None:
        self.path = path / connect.NAME if path.is_dir() else path
        require(self.path, f"there is no ledger in {path}" if path.is_dir() else f"there is no file {path}")
        with reported(self.path, "read"), closing(connect.connect(self.path, "ro")) as connection:
            refuse_unusable(connection, self.path, Schema())

    def snapshot(self) -> Snapshot | None:
        """The oldest whole snapshot that its events follow without a gap; None if they begin with the first."""
        with reported(self.path, "read"), closing(connect.connect(self.path, "ro")) as connection:
            (first,) = connection.execute("SELECT coalesce(min(seq), 0) FROM events").fetchone()
            if first == 1:
                return None
            return _oldest(connection, self.path, first)

    def events(self, after: int) -> Iterator[StoredEvent]:
        """Events with seq > after, in order; with 0: from the first one on that is kept."""
        with reported(self.path, "read"), closing(connect.connect(self.path, "ro")) as connection:
            if not after:
                (first,) = connection.execute("SELECT coalesce(min(seq), 1) FROM events").fetchone()
                after = first - 1
            while page := connection.execute(rows.TAIL, (after,)).fetchall():
                for row in page:
                    yield rows.read_event(row, self.path, after)
                    after += 1


def _oldest(connection: sqlite3.Connection, path: Path, first: int) -> Snapshot | None:
    kept = sorted(seq for (seq,) in connection.execute("SELECT seq FROM snapshots") if seq >= first - 1)
    for seq in kept:
        try:
            return rows.unpack_snapshot(connection.execute(rows.ONE_SNAPSHOT, (seq,)).fetchone(), path)
        except Damaged:
            continue
    if first:
        raise damaged(path, f"events before {first} were pruned, and no snapshot of them is whole")
    return None
