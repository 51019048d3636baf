"""Putting a backup in the place of a ledger.

Comes in: a backup, the state directory. Goes out: a ledger that knows it was restored, with an epoch above both; the
one it replaced, under a dated name. Called by: cli `server restore`.

A kill at any point leaves either the old ledger or the new one under the name: the replaced file first gets its second
name, then the new one takes the first in one rename.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from orchestrator.model.errors import GanglineError
from orchestrator.store import connect
from orchestrator.store.backup import Contents, verify
from orchestrator.store.copy import (
    COMPANIONS,
    PART,
    copy_into,
    discard,
    free_name,
    stamp,
    sync_file,
    sync_folder,
)
from orchestrator.store.faults import Damaged, reported
from orchestrator.store.lock import LedgerLock, in_use
from orchestrator.store.netfs import refuse_network
from orchestrator.store.schema import Schema, is_current, upgrade

_MAGIC = b"SQLite format 3\0"


def restore(backup: str | Path, state_dir: str | Path, now_us: int) -> Path | None:
    """Put a backup back; where the replaced ledger is now, None if there was none.

    Damaged if the backup is; Conflict while anybody has the ledger open; Unavailable if it can't be written.
    """
    source, state = Path(backup), Path(state_dir)
    refuse_network(state)
    contents = _whole(source)
    with reported(state, "create"):
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = LedgerLock(state)
    try:
        if not lock.alone():
            raise in_use(state, "replace")
        return _replace(source, contents, state / connect.NAME, now_us)
    finally:
        lock.close()


def _whole(source: Path) -> Contents:
    """What the backup holds; one that is damaged needs other advice than a ledger."""
    try:
        return verify(source)
    except Damaged as error:
        hint = "it was not put back, and nothing was changed: choose another backup"
        raise Damaged(error.code, error.message, hint=hint, path=error.path) from error


def _replace(source: Path, contents: Contents, ledger: Path, now_us: int) -> Path | None:
    part = ledger.with_name(f"{ledger.name}{PART}")
    try:
        copy_into(source, part)
        epoch = max(contents.epoch, _settle(ledger)) + 1
        _mark(part, contents, epoch, now_us)
        with reported(ledger, "replace"):
            aside = _set_aside(ledger, now_us)
            part.replace(ledger)
            sync_folder(ledger.parent)
    finally:
        discard(part)
    return aside


def _mark(part: Path, contents: Contents, epoch: int, now_us: int) -> None:
    """Say in the copy that it was restored. A backup that has no time of its own is as old as its last event."""
    with reported(part, "write"):
        if not is_current(part, Schema()):
            upgrade(part, Schema(), now_us, keep_copy=False)
        made_us = contents.backup_us or contents.last_us or 1
        stamp(part, "UPDATE meta SET epoch = ?, restored_us = ?, backup_us = 0", (epoch, made_us))
        sync_file(part)


def _settle(ledger: Path) -> int:
    """Empty the replaced ledger's WAL into its file, so that it is one file; its epoch, 0 if it can't be read.

    The epoch is raised first: whoever still works on this file, past the lock, is fenced from it.
    """
    if not _is_database(ledger):
        return 0
    try:
        with reported(ledger, "read"), closing(connect.connect(ledger, "rw")) as connection:
            connection.execute("UPDATE meta SET epoch = epoch + 1")
            row = connection.execute("SELECT epoch FROM meta").fetchone()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except GanglineError:
        return 0  # damaged, which may be why a backup is put back
    return int(row[0]) if row else 0


def _is_database(ledger: Path) -> bool:
    """SQLite deletes the log of what it does not know for a database: look before it is opened."""
    if not ledger.exists():
        return False
    with reported(ledger, "read"), ledger.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _set_aside(ledger: Path, now_us: int) -> Path | None:
    """Give the present ledger, and what a damaged one left beside it, a second name."""
    aside = free_name(ledger.with_name(f"{ledger.name}.replaced"), now_us) if ledger.exists() else None
    if aside is not None:
        aside.hardlink_to(ledger)
    for suffix in COMPANIONS:
        companion = ledger.with_name(ledger.name + suffix)
        if aside is not None and companion.exists():
            companion.rename(aside.with_name(aside.name + suffix))
        companion.unlink(missing_ok=True)
    sync_folder(ledger.parent)
    return aside
