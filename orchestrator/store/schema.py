"""The revision of a ledger's tables: read at open, upgraded if older, refused if newer.

Comes in: a ledger file that its caller has alone, if anything is to be changed. Goes out: one of revision
tables.REVISION, and beside it a copy of the file as it was before an upgrade. Called by: open, restore.

Alembic is imported only when a file is new or older: it costs 12 MiB and a quarter of a second.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.model.errors import GanglineError
from orchestrator.store import connect
from orchestrator.store.copy import copy_ledger, free_name
from orchestrator.store.faults import damaged, reported
from orchestrator.store.tables import FORMAT, REVISION

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

MIGRATIONS = Path(__file__).with_name("migrations")


@dataclass(frozen=True, slots=True)
class Schema:
    """Where the revisions lie and which is the newest; tests pass others."""

    folder: Path = MIGRATIONS
    newest: str = REVISION


def revision_of(connection: sqlite3.Connection, path: Path) -> str:
    """The revision of an open file, empty for an empty database; Damaged if it holds something else."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return ""
    if "alembic_version" not in tables:
        raise damaged(path, "it is a database of another program")
    rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    if len(rows) != 1:
        raise damaged(path, "its revision can't be read")
    return str(rows[0][0])


def is_current(path: Path, schema: Schema) -> bool:
    """Whether the file can be used as it is. Damaged, or GanglineError `ledger.newer`, if it can't be used at all."""
    with reported(path, "read"), closing(connect.connect(path, "ro")) as connection:
        revision = revision_of(connection, path)
        if revision:
            refuse_unusable(connection, path, schema)
    return revision == schema.newest


def refuse_unusable(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    """Damaged if an open file is no ledger; GanglineError `ledger.newer` if a newer Gangline wrote it."""
    revision = revision_of(connection, path)
    if not revision:
        raise damaged(path, "it is empty")
    if revision != schema.newest:
        _refuse_unknown(path, revision, schema)
    row = connection.execute("SELECT format FROM meta").fetchone()
    if row is None:
        raise damaged(path, "its head is missing")
    if row[0] > FORMAT:
        raise _newer(path, f"format {row[0]}, and this one reads {FORMAT} and older")


def upgrade(path: Path, schema: Schema, now_us: int, *, keep_copy: bool = True) -> Path | None:
    """Bring a file that the caller has alone to the newest revision; the copy made before, if any was."""
    copy = None
    with reported(path, "upgrade"):
        with closing(connect.connect(path, "rw")) as connection:
            revision = revision_of(connection, path)
        if revision and keep_copy:
            copy = free_name(path.with_name(f"{path.name}.revision-{revision}"), now_us)
            copy_ledger(path, copy, backup_us=now_us)
        _run_revisions(path, schema)
    return copy


def _run_revisions(path: Path, schema: Schema) -> None:
    from alembic import command

    engine = connect.engine(path, "rw")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")  # a rebuilt table is dropped in between
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            command.upgrade(_config(schema, connection), "head")
            _check_references(connection, path)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()


def _check_references(connection: Connection, path: Path) -> None:
    if broken := connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall():
        raise damaged(path, f"{len(broken)} rows point nowhere after the upgrade")


def _config(schema: Schema, connection: object = None) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(schema.folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_unknown(path: Path, revision: str, schema: Schema) -> None:
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(_config(schema)).walk_revisions()}
    if revision not in known:
        raise _newer(path, f"revision {revision}, and this one knows {schema.newest} and older")


def _newer(path: Path, what: str) -> GanglineError:
    return GanglineError(
        "ledger.newer",
        f"the ledger {path} was written by a newer Gangline ({what})",
        hint="install that version again, or restore a copy from before its upgrade with `gangline server restore`",
        path=str(path),
    )
