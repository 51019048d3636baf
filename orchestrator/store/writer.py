"""The one connection that writes: transactions that begin with a look at the ledger's head.

Comes in: the ledger's file, statements. Goes out: committed transactions, or an error after which none of it is in the
ledger and the connection can be used again. Called by: sqlite.SqliteStore.

What an error in COMMIT means:

- The transaction can't be seen on this connection: it is not in the ledger. SQLite shows a commit only after its
  fsync, and the next write overwrites what the failed one left in the WAL. Only a crash before that write can bring
  the batch back, like one just before an acknowledgement: whoever restarts folds what is there.
- It can be seen: it is durable, and the write returns as if nothing had been.
- The connection can't say: it is opened anew, which lets SQLite recover the WAL, and the ledger's end decides. If
  that fails too, the store refuses all work until it is opened again (`ledger.unknown`), since a guess either way
  could contradict the ledger.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.model.errors import GanglineError, Unavailable
from orchestrator.store import connect
from orchestrator.store.faults import explain, reported
from orchestrator.store.rows import HEAD


class Head(NamedTuple):
    """Who owns the ledger and where it ends: the newest event's seq and time, 0 and 0 without one."""

    epoch: int
    seq: int
    t_us: int


class CommitFailed(Exception):
    """COMMIT raised: ask `landed` whether the transaction is in the ledger; if not, show `shown`.

    `broken`: the connection went with it, so that nobody remembers what it had shown.
    """

    def __init__(self, shown: GanglineError, *, broken: bool) -> None:
        super().__init__(str(shown))
        self.shown = shown
        self.broken = broken


class Writer:
    """One connection, opened when it is first needed and again when it broke."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._unknown: GanglineError | None = None

    @contextmanager
    def transaction(self, doing: str) -> Iterator[tuple[sqlite3.Connection, Head]]:
        """BEGIN IMMEDIATE ... COMMIT; `doing` completes "can't ..." in an error. CommitFailed, Unavailable, Damaged."""
        with reported(self._path, doing):
            connection = self._connected()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection, Head(*connection.execute(HEAD).fetchone())
            except BaseException:
                self._roll_back()
                raise
            try:
                commit(connection)
            except sqlite3.Error as error:
                self._roll_back()
                broken = self._connection is not connection
                raise CommitFailed(explain(error, self._path, doing), broken=broken) from error

    @contextmanager
    def repeatable(self, doing: str) -> Iterator[tuple[sqlite3.Connection, Head]]:
        """The same for writes that may be done twice: a failed COMMIT is an error, whatever became of it."""
        try:
            with self.transaction(doing) as begun:
                yield begun
        except CommitFailed as failure:
            raise failure.shown from failure.__cause__

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement, outside any transaction."""
        with reported(self._path, "read"):
            return self._connected().execute(statement, values).fetchall()

    def landed(self, failure: CommitFailed, seq: int, epoch: int) -> bool:
        """Whether the event that was to be written is in the ledger after all. Unavailable if nobody can say."""
        if not failure.broken:
            with suppress(GanglineError):
                return self._has(seq, epoch)
            self.close()
        try:
            there = self._has(seq, epoch)
            if there:
                self._make_durable()
        except GanglineError as error:
            self._unknown = _unknown(self._path, error)
            raise self._unknown from error
        return there

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._unknown is not None:
            raise self._unknown
        if self._connection is None:
            self._connection = connect.connect(self._path, "rw")
        return self._connection

    def _roll_back(self) -> None:
        """Leave the connection without a transaction, or drop it: the next call opens another one."""
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    def _has(self, seq: int, epoch: int) -> bool:
        return bool(self.read("SELECT 1 FROM events WHERE seq = ? AND epoch = ?", (seq, epoch)))

    def _make_durable(self) -> None:
        """What recovery found in the WAL may have missed its fsync: copy it into the ledger's file, which has one."""
        busy, in_log, copied = self.read("PRAGMA wal_checkpoint(FULL)")[0]
        if busy or copied < in_log:
            raise Unavailable("ledger.locked", "readers keep the write-ahead log from being copied")


def commit(connection: sqlite3.Connection) -> None:
    """The one fsync of a write; tests let it fail."""
    connection.execute("COMMIT")


def _unknown(path: Path, error: GanglineError) -> Unavailable:
    return Unavailable(
        "ledger.unknown",
        f"whether the last write to {path} was kept can't be told: {error.message}",
        hint="the controller must start again, and will go on from what the ledger holds",
        path=str(path),
    )
