"""The store on SQLite: one file, one writer's connection, readers and copies beside it.

Comes in: events, ended jobs and snapshots from the controller's core thread. Goes out: the same after any crash;
Fenced, Unavailable, Damaged. Called by: open.open_store makes it, the controller uses it through base.Store.

A write is one transaction: BEGIN IMMEDIATE, the epoch and the ledger's end in one look-up, the inserts, COMMIT with
one fsync (writer.py says what an error in COMMIT means).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from orchestrator.ledger.events import StoredEvent
from orchestrator.model.clock import Clock
from orchestrator.model.errors import Fenced
from orchestrator.store import connect, rows
from orchestrator.store.backup import backup_file
from orchestrator.store.base import KEYS_KEPT_US, AppliedRow, HistoryRow, KeyRow, PackedSnapshot, Snapshot
from orchestrator.store.faults import Damaged, damaged
from orchestrator.store.history import SqlHistoryReader
from orchestrator.store.lock import LedgerLock
from orchestrator.store.writer import CommitFailed, Head, Writer

SNAPSHOTS_KEPT = 3
APPLIED_KEPT = 100  # a cluster of 10,000 nodes takes a megabyte each
PRUNE_CHUNK = (
    10_000  # events a transaction, so that a prune neither bloats the WAL nor holds the lock for long
)

FORGET_KEYS = "DELETE FROM submit_keys WHERE key IN (SELECT key FROM submit_keys WHERE t_us <= ? LIMIT ?)"


class SqliteStore:
    """A Store on one SQLite file. The lock, which says that the file is in use, is let go with it."""

    def __init__(self, path: Path, lock: LedgerLock, clock: Clock, cluster: str = "") -> None:
        self._path = path
        self._lock = lock
        self._clock = clock
        self._cluster = cluster
        self._writer = Writer(path)
        self._epoch = 0

    # --- the owner ----------------------------------------------------------------------------------------------

    def claim(self, unix_s: int) -> int:
        """Take the ledger: epoch = max(stored + 1, `unix_s`). Unavailable if that can't be written."""
        with self._writer.repeatable("claim") as (connection, head):
            epoch = max(head.epoch + 1, unix_s)
            connection.execute(
                "UPDATE meta SET epoch = ?, cluster = CASE cluster WHEN '' THEN ? ELSE cluster END",
                (epoch, self._cluster),
            )
        self._epoch = epoch
        return epoch

    # --- events -------------------------------------------------------------------------------------------------

    def append(
        self,
        events: Sequence[StoredEvent],
        ended: Sequence[HistoryRow] = (),
        applied: Sequence[AppliedRow] = (),
        keys: Sequence[KeyRow] = (),
        *,
        restore_noted: bool = False,
    ) -> None:
        """One durable transaction. Fenced, Unavailable; ValueError for events that don't continue the ledger."""
        prepared = [rows.event_row(event) for event in events]
        histories = [rows.history_row(row) for row in ended]
        records = [rows.record_row(row) for row in ended]
        clusters = [rows.applied_row(row) for row in applied]
        known = [(row.key, row.job, row.digest, row.t_us) for row in keys]
        try:
            with self._writer.transaction("write to") as (connection, head):
                self._check_epoch(head)
                self._check_order(events, head)
                _insert_events(connection, events, prepared, head)
                _many(connection, rows.UPSERT_HISTORY, histories)
                _many(connection, rows.UPSERT_RECORD, records)
                _insert_applied(connection, clusters)
                _many(connection, rows.UPSERT_KEY, known)
                if restore_noted:
                    connection.execute("UPDATE meta SET restored_us = 0")
        except CommitFailed as failure:
            if not events or not self._writer.landed(failure, events[-1].seq, self._epoch):
                raise failure.shown from failure.__cause__

    def key(self, key: str) -> KeyRow | None:
        """What a key has made, or None."""
        return self.keys((key,)).get(key)

    def keys(self, keys: Sequence[str]) -> dict[str, KeyRow]:
        """What each of these keys has made that has made something; one statement, however many they are."""
        found = self._writer.read(rows.SOME_KEYS, (json.dumps(list(keys)),)) if keys else ()
        return {row[0]: KeyRow(*row) for row in found}

    def tail(self, after: int) -> Iterator[StoredEvent]:
        """Events with seq > after. Damaged (a ValueError), with the place, if one is missing or can't be read."""
        last, _ = self.last()
        if after > last:
            raise damaged(self._path, f"it ends at event {last}, but event {after} was in it once")
        while page := self._writer.read(rows.TAIL, (after,)):
            for row in page:
                yield rows.read_event(row, self._path, after)
                after += 1

    def last(self) -> tuple[int, int]:
        """(seq, t_us) of the newest event; (0, 0) for an empty ledger."""
        head = Head(*self._writer.read(rows.HEAD)[0])
        return head.seq, head.t_us

    # --- snapshots ----------------------------------------------------------------------------------------------

    def save_snapshot(self, snapshot: Snapshot | PackedSnapshot) -> None:
        """Keep it, and the two before. ValueError if the ledger has not got that far."""
        row = rows.pack_snapshot(snapshot)
        with self._writer.repeatable("write a snapshot to") as (connection, head):
            self._check_epoch(head)
            if snapshot.seq > head.seq:
                raise ValueError(f"a snapshot after event {snapshot.seq}, and the ledger ends at {head.seq}")
            connection.execute(rows.UPSERT_SNAPSHOT, row)
            connection.execute(
                "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                (SNAPSHOTS_KEPT,),
            )

    def load_snapshot(self) -> Snapshot | None:
        """The newest one that is whole."""
        for seq in reversed(self._kept_snapshots()):
            with suppress(Damaged):
                return rows.unpack_snapshot(self._snapshot_row(seq), self._path)
        return None

    def restored_us(self) -> int:
        """When the backup was made that this ledger was put back from, until a controller notes it; else 0."""
        return int(self._writer.read("SELECT restored_us FROM meta")[0][0])

    # --- upkeep -------------------------------------------------------------------------------------------------

    def prune(self, keep_days: int, now_us: int, *, at_most: int = 0) -> int:
        """Drop days before the last `keep_days` that every whole snapshot covers; how many events went.

        The day of the newest event stays, so that the ledger always knows where it ends. A call drops `at_most` events
        (0: all there are) from the front; whoever must not wait long calls again until it returns 0.
        """
        first_kept = rows.day_of(now_us - keep_days * rows.DAY_US)
        days = pairwise(self._writer.read("SELECT day, first_seq FROM segments ORDER BY first_seq"))
        old = [(day, first, after) for (day, first), (_, after) in days if day < first_kept]
        covered = self._oldest_whole() if old else 0
        gone = 0
        for day, first, after in old:
            if after - 1 > covered or (at_most and gone >= at_most):
                break
            gone += self._drop_day(day, first, after, at_most - gone if at_most else after - first)
        return gone

    def forget_keys(self, now_us: int, *, at_most: int = 0) -> int:
        """Drop keys that are older than a day, at most so many (0: all); how many went."""
        gone = 0
        while not at_most or gone < at_most:
            chunk = min(PRUNE_CHUNK, at_most - gone) if at_most else PRUNE_CHUNK
            with self._writer.repeatable("prune") as (connection, head):
                self._check_epoch(head)
                went = connection.execute(FORGET_KEYS, (now_us - KEYS_KEPT_US, chunk)).rowcount
            gone += went
            if went < chunk:
                break
        return gone

    def backup(self, target: str) -> None:
        """A copy in one new file. It uses no connection of the writer's, so that any thread may call it."""
        backup_file(self._path, Path(target), self._clock.now_us())

    def reader(self) -> SqlHistoryReader:
        """A reader with a read-only connection of its own."""
        return SqlHistoryReader(connect.engine(self._path, "ro"), self._path)

    def close(self) -> None:
        """Let go of the connection and the lock."""
        self._writer.close()
        self._lock.close()

    # --- inside -------------------------------------------------------------------------------------------------

    def _check_epoch(self, head: Head) -> None:
        if self._epoch == 0:
            raise ValueError("claim the store before writing to it")
        if head.epoch != self._epoch:
            raise Fenced(
                "ledger.fenced",
                f"another controller took {self._path} (its epoch is {head.epoch}, this one's {self._epoch})",
                hint="this controller stops and the other one goes on; run one controller on a ledger",
                path=str(self._path),
            )

    def _check_order(self, events: Sequence[StoredEvent], head: Head) -> None:
        """A bug of the caller must not become a ledger that can't be folded."""
        seq, t_us = head.seq, head.t_us
        for event in events:
            if event.seq != seq + 1:
                raise ValueError(f"event {event.seq} does not continue a ledger that ends at {seq}")
            if event.t_us < t_us:
                raise ValueError(f"event {event.seq} is older ({event.t_us}) than the one before it ({t_us})")
            if event.epoch != self._epoch:
                raise ValueError(
                    f"event {event.seq} has epoch {event.epoch}, and the claimed one is {self._epoch}"
                )
            seq, t_us = event.seq, event.t_us

    def _kept_snapshots(self) -> list[int]:
        return sorted(seq for (seq,) in self._writer.read("SELECT seq FROM snapshots"))

    def _snapshot_row(self, seq: int) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._writer.read(rows.ONE_SNAPSHOT, (seq,))[0]
        return row

    def _oldest_whole(self) -> int:
        """The event after which the oldest whole snapshot stands; 0: there is none."""
        return next((seq for seq in self._kept_snapshots() if rows.is_whole(self._snapshot_row(seq))), 0)

    def _drop_day(self, day: str, first: int, after: int, at_most: int) -> int:
        """Delete events `first` to `after` - 1, or the first `at_most` of them; a kill in between leaves no gap."""
        begun, stop = first, min(after, first + at_most)
        while first < stop:
            end = min(first + PRUNE_CHUNK, stop)
            with self._writer.repeatable("prune") as (connection, head):
                self._check_epoch(head)
                connection.execute("DELETE FROM events WHERE seq < ?", (end,))
                connection.execute("UPDATE segments SET first_seq = ? WHERE day = ?", (end, day))
                connection.execute("DELETE FROM segments WHERE day = ? AND first_seq = ?", (day, after))
            first = end
        return stop - begun


def _insert_events(
    connection: sqlite3.Connection, events: Sequence[StoredEvent], prepared: list[tuple[Any, ...]], head: Head
) -> None:
    _many(connection, rows.INSERT_EVENTS, prepared)
    days = rows.new_days(events, head.t_us if head.seq else None)
    _many(connection, rows.INSERT_SEGMENTS, list(days))


def _insert_applied(connection: sqlite3.Connection, clusters: list[tuple[Any, ...]]) -> None:
    if clusters:
        connection.executemany(rows.UPSERT_APPLIED, clusters)
        connection.execute(rows.FORGET_APPLIED, (APPLIED_KEPT,))


def _many(connection: sqlite3.Connection, statement: str, values: list[tuple[Any, ...]]) -> None:
    for first, count in rows.widths(len(values)):
        together = values[first : first + count]
        connection.execute(rows.wide(statement, count), tuple(chain.from_iterable(together)))
