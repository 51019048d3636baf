"""Values to rows and back, and the statements of the write path.

Comes in: events, rows of history and snapshots as base.py has them. Goes out: tuples in the order of the tables'
columns, and the same values again. Called by: sqlite, history, verify.

The statements are compiled once from the Core tables and then run by the bare driver with tuples. Of a transaction with
one event Core's own execute took 2.4 times the processor time, driver SQL on SQLAlchemy's connection 1.5 times; with
1,000 events 1.6 times and the same (`python -m tests.bench.store`).
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Table, bindparam, select, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import ClauseElement

from orchestrator.ledger.events import StoredEvent
from orchestrator.store.base import AppliedRow, HistoryRow, PackedSnapshot, Snapshot
from orchestrator.store.faults import damaged
from orchestrator.store.tables import APPLIED, EVENTS, HISTORY, KEYS, RECORDS, SEGMENTS, SNAPSHOTS

# Each run of a statement gives the interpreter away, and a busy event loop keeps it for a while: row by row, a commit
# of a hundred events would wait a hundred times. Besides, rows take less than half of the processor time together.
WIDEST = 64  # rows of one statement
VALUES = re.compile(r"VALUES (\([?, ]+\))")
TAIL_PAGE = 1000  # events read at a time, so that folding a long tail holds no read transaction open
DAY_US = 24 * 3600 * 1_000_000
_EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC)

# A float that JSON has no word for is a bug of the caller: ValueError before anything is written.
dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _sql(statement: ClauseElement) -> str:
    return str(statement.compile(dialect=sqlite.dialect()))


def _upsert(table: Table) -> str:
    statement = sqlite.insert(table)
    keys = list(table.primary_key.columns)
    rest = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    return _sql(statement.on_conflict_do_update(index_elements=keys, set_=rest))


INSERT_EVENTS = _sql(EVENTS.insert())
INSERT_SEGMENTS = _sql(SEGMENTS.insert())
UPSERT_SNAPSHOT = _upsert(SNAPSHOTS)
UPSERT_HISTORY = _upsert(HISTORY)
UPSERT_RECORD = _upsert(RECORDS)
ALL_APPLIED = _sql(select(APPLIED))
UPSERT_APPLIED = _upsert(APPLIED)
FORGET_APPLIED = "DELETE FROM applied WHERE seq NOT IN (SELECT seq FROM applied ORDER BY seq DESC LIMIT ?)"

UPSERT_KEY = _upsert(KEYS)
SOME_KEYS = _sql(select(KEYS).where(KEYS.c.key.in_(text("SELECT value FROM json_each(?)"))))

ONE_SNAPSHOT = _sql(select(SNAPSHOTS).where(SNAPSHOTS.c.seq == bindparam("seq")))

# The state that every write begins with: who owns the ledger, and where it ends.
HEAD = (
    "SELECT m.epoch, coalesce(e.seq, 0), coalesce(e.t_us, 0) FROM meta m"
    " LEFT JOIN events e ON e.seq = (SELECT max(seq) FROM events)"
)
EVENTS_IN_ORDER = _sql(select(EVENTS).order_by(EVENTS.c.seq))
TAIL = (
    _sql(select(EVENTS).where(EVENTS.c.seq > bindparam("after")).order_by(EVENTS.c.seq))
    + f" LIMIT {TAIL_PAGE}"
)


@cache
def wide(statement: str, count: int) -> str:
    """The same INSERT for so many rows at once."""
    one = VALUES.search(statement)
    assert one is not None
    return statement[: one.end()] + f", {one.group(1)}" * (count - 1) + statement[one.end() :]


def widths(count: int) -> Iterator[tuple[int, int]]:
    """So many rows in as few statements as can be: (first, rows) of each. The driver keeps all widths compiled."""
    for first in range(0, count, WIDEST):
        yield first, min(WIDEST, count - first)


def event_row(event: StoredEvent) -> tuple[Any, ...]:
    """An event in the order of EVENTS."""
    return (*event[:8], dumps(event.body))


def read_event(row: Sequence[Any], path: Path, previous: int) -> StoredEvent:
    """The event of a row; Damaged, with its number, if it is not `previous` + 1 or its body is no JSON object."""
    if row[0] != previous + 1:
        raise damaged(path, f"event {previous + 1} is missing, the next one is event {row[0]}")
    try:
        body = json.loads(row[8])
    except (ValueError, TypeError):
        body = None
    if not isinstance(body, dict):
        raise damaged(path, f"the body of event {row[0]} can't be read")
    return StoredEvent._make((*row[:8], body))


def day_of(t_us: int) -> str:
    """The UTC day of a time, as 2026-11-30."""
    return (_EPOCH_DAY + timedelta(days=t_us // DAY_US)).date().isoformat()


def new_days(events: Iterable[StoredEvent], last_t_us: int | None) -> Iterator[tuple[str, int]]:
    """(day, first seq) of each segment that begins within the events; `last_t_us` None for an empty ledger."""
    number = None if last_t_us is None else last_t_us // DAY_US
    for event in events:
        if event.t_us // DAY_US != number:
            number = event.t_us // DAY_US
            yield day_of(event.t_us), event.seq


def history_row(row: HistoryRow) -> tuple[Any, ...]:
    """An ended job in the order of HISTORY."""
    return (
        row.job, row.name, row.owner, row.queue, row.state, row.exit_code, row.submitted_us, row.ended_us,
    )  # fmt: skip


def record_row(row: HistoryRow) -> tuple[Any, ...]:
    """Its record in the order of RECORDS."""
    return (row.job, dumps(row.record))


def read_history(row: Sequence[Any]) -> HistoryRow:
    """The ended job of a row of HISTORY followed by its record."""
    job, name, owner, queue, state, exit_code, submitted_us, ended_us, record = row
    return HistoryRow(job, name, owner, queue, state, exit_code, submitted_us, ended_us, json.loads(record))


def applied_row(row: AppliedRow) -> tuple[Any, ...]:
    """What was applied in the order of APPLIED."""
    return (row.seq, row.t_us, row.by, row.digest, row.commit, row.v, dumps(row.body))


def read_applied(row: Sequence[Any], path: Path) -> AppliedRow:
    """The same back; a row without its last column has no body. Damaged if that is no JSON object."""
    try:
        body = json.loads(row[6]) if len(row) > 6 else {}
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise damaged(path, f"what event {row[0]} has applied can't be read")
    seq, t_us, by, digest, commit, v = row[:6]
    return AppliedRow(seq, t_us, by, digest, commit, v, body)


class Packer:
    """Packs the JSON text of a snapshot's body bit by bit: zlib at its quickest level."""

    def __init__(self) -> None:
        self._zip = zlib.compressobj(level=1)
        self._done: list[bytes] = []

    def add(self, text: str) -> None:
        """The next bit of the text."""
        self._done.append(self._zip.compress(text.encode()))

    def snapshot(self, seq: int, t_us: int, version: int) -> PackedSnapshot:
        """The whole, after the last bit."""
        return PackedSnapshot(seq, t_us, version, b"".join([*self._done, self._zip.flush()]))


def pack_snapshot(snapshot: Snapshot | PackedSnapshot) -> tuple[Any, ...]:
    """A snapshot in the order of SNAPSHOTS, with a SHA-256 over all that is kept."""
    if isinstance(snapshot, Snapshot):
        packer = Packer()
        packer.add(dumps(snapshot.body))
        snapshot = packer.snapshot(snapshot.seq, snapshot.t_us, snapshot.version)
    about = (snapshot.seq, snapshot.t_us, snapshot.version)
    return (*about, _checksum(*about, snapshot.packed), snapshot.packed)


def is_whole(row: Sequence[Any]) -> bool:
    """Whether a row of SNAPSHOTS is what was kept."""
    seq, t_us, version, checksum, packed = row
    return isinstance(packed, bytes) and checksum == _checksum(seq, t_us, version, packed)


def unpack_snapshot(row: Sequence[Any], path: Path) -> Snapshot:
    """The snapshot of a row of SNAPSHOTS; Damaged if it is not what was kept."""
    seq, t_us, version, _, packed = row
    if not is_whole(row):
        raise damaged(path, f"the snapshot after event {seq} does not have its checksum")
    return Snapshot(seq, t_us, version, json.loads(zlib.decompress(packed)))


def _checksum(seq: int, t_us: int, version: int, packed: bytes) -> str:
    return hashlib.sha256(f"{seq} {t_us} {version} ".encode() + packed).hexdigest()
