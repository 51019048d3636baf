"""Opening a store: the directory, the lock, the revision, then the engine.

Comes in: the state directory. Goes out: a Store on STATE/ledger.db, created or upgraded if need be. Called by:
controller at its start.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path

from orchestrator.model.clock import Clock, SystemClock
from orchestrator.model.errors import Conflict
from orchestrator.store import connect
from orchestrator.store.copy import sync_folder
from orchestrator.store.faults import damaged, reported
from orchestrator.store.lock import LedgerLock, in_use
from orchestrator.store.netfs import refuse_network
from orchestrator.store.schema import Schema, is_current, upgrade
from orchestrator.store.sqlite import SqliteStore


def open_store(
    path: str | Path, clock: Clock | None = None, *, cluster: str = "", schema: Schema | None = None
) -> SqliteStore:
    """Open the ledger in the state directory `path`, or make one there (directory 0700, files 0600).

    `cluster` names whose ledger it must be; the first controller that claims it sets that. Unavailable: a network file
    system, a disk, a permission. Conflict: another cluster's, or an upgrade while it is in use. Damaged.
    GanglineError `ledger.newer`.
    """
    state, clock = Path(path).absolute(), clock or SystemClock()
    refuse_network(state)
    _make_folder(state)
    ledger = state / connect.NAME
    lock = LedgerLock(state)
    try:
        _prepare(ledger, lock, schema or Schema(), clock.now_us())
        _check_cluster(ledger, cluster)
        return SqliteStore(ledger, lock, clock, cluster)
    except BaseException:
        lock.close()
        raise


def _prepare(ledger: Path, lock: LedgerLock, schema: Schema, now_us: int) -> None:
    """Make or upgrade the file if nobody else has it; then hold the lock together with whoever does."""
    alone = lock.alone()
    if not alone:
        lock.share()
    _make_file(ledger)
    if not is_current(ledger, schema):
        if not alone:
            raise in_use(ledger.parent, "upgrade")
        upgrade(ledger, schema, now_us)
    lock.share()


def _make_folder(state: Path) -> None:
    if state.is_dir():
        return
    with reported(state, "create"):
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(state.parent)


def _make_file(ledger: Path) -> None:
    """An empty file is an empty database, and SQLite gives what it puts beside it the same mode."""
    with reported(ledger, "create"):
        if ledger.exists():
            if ledger.stat().st_mode & 0o077:
                ledger.chmod(0o600)
            return
        if ledger.with_name(f"{ledger.name}-wal").exists():
            raise damaged(ledger, "its file is gone, and its write-ahead log is still there")
        with suppress(FileExistsError):
            os.close(os.open(ledger, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            sync_folder(ledger.parent)


def _check_cluster(ledger: Path, cluster: str) -> None:
    with reported(ledger, "read"), closing(connect.connect(ledger, "ro")) as connection:
        (stored,) = connection.execute("SELECT cluster FROM meta").fetchone()
    if cluster and stored and stored != cluster:
        raise Conflict(
            "ledger.other-cluster",
            f"the ledger {ledger} belongs to cluster {stored}, not to {cluster}",
            hint="give each cluster a state directory of its own",
            path=str(ledger),
        )
