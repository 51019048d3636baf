"""The ledger's tables, once; statements are compiled from them, and a test holds the migrations to them.

Comes in: nothing. Goes out: SQLAlchemy Core tables, the names of revision and format. Called by: the engine (writes),
history (reads), migrations' test. All times are UTC microseconds.

One place for a fact: a segment has no end, since it ends where the next one begins; and a commit within a day then
touches no page of `segments`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

REVISION = (
    "0002"  # the newest in migrations/versions; kept here so that opening a current ledger imports no Alembic
)
FORMAT = 1  # of what the columns hold: bodies are compact JSON text, snapshots are zlib over JSON

# SQLite's own row number is an INTEGER key; other engines need the wide type.
_KEY = BigInteger().with_variant(Integer, "sqlite")

METADATA = MetaData()

META = Table(
    "meta",
    METADATA,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("format", Integer, nullable=False),
    Column("cluster", Text, nullable=False),  # the name it was first opened for; empty: not told
    Column("epoch", BigInteger, nullable=False),
    Column(
        "restored_us", BigInteger, nullable=False
    ),  # when the backup was made that was put back; 0: none, or noted
    Column("backup_us", BigInteger, nullable=False),  # in a backup: when it was made; 0 in a ledger
)

EVENTS = Table(
    "events",
    METADATA,
    Column("seq", _KEY, primary_key=True, autoincrement=False),
    Column("t_us", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("v", Integer, nullable=False),
    Column("subject", Text, nullable=False),
    Column("batch", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("body", Text, nullable=False),
)

SEGMENTS = Table(
    "segments",
    METADATA,
    Column("day", Text, primary_key=True),  # UTC, as 2026-11-30
    Column("first_seq", BigInteger, nullable=False),
)

SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("seq", _KEY, primary_key=True, autoincrement=False),
    Column("t_us", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# Narrow, so that a list that finds little reads little: a job's whole record has a table of its own.
HISTORY = Table(
    "history",
    METADATA,
    Column("job", _KEY, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("exit_code", Integer, nullable=False),
    Column("submitted_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger, nullable=False),
    Index("history_name", "name", "job"),
    Index("history_owner", "owner", "job"),
    Index("history_queue", "queue", "job"),
    Index("history_state", "state", "job"),
    Index("history_ended", "ended_us", "job"),
)

RECORDS = Table(
    "history_records",
    METADATA,
    Column("job", _KEY, ForeignKey("history.job", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("record", Text, nullable=False),
)

# What was applied to the cluster; kept when the events around it have been pruned, so that there is a way back.
APPLIED = Table(
    "applied",
    METADATA,
    Column("seq", _KEY, primary_key=True, autoincrement=False),  # of its event
    Column("t_us", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("commit_name", Text, nullable=False),  # `commit` is a word of SQL's own
    Column("v", Integer, nullable=False),  # of the event's body
    Column("body", Text, nullable=False),
)

# What an Idempotency-Key has made, so that a submit that is sent again makes no second job.
KEYS = Table(
    "submit_keys",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("job", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("t_us", BigInteger, nullable=False),
    Index("submit_keys_t", "t_us"),
)
