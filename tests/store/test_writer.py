"""What a failed COMMIT means: the transaction is looked for, and the answer is what `append` says."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.errors import Unavailable
from orchestrator.store import connect, writer
from orchestrator.store.backup import verify
from orchestrator.store.base import HistoryQuery, Snapshot
from orchestrator.store.faults import explain
from orchestrator.store.open import open_store
from orchestrator.store.sqlite import SqliteStore
from tests.store.contract import T0, batch, claimed, ended, event


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = open_store(tmp_path)
    yield store
    store.close()


def _error(text: str = "disk I/O error", code: int = sqlite3.SQLITE_IOERR_FSYNC) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def _fail_commit(
    patch: pytest.MonkeyPatch, before: Callable[[sqlite3.Connection], object], after: bool
) -> None:
    """The next COMMIT fails, before anything or after all was done; later ones work."""
    real = writer.commit

    def commit(connection: sqlite3.Connection) -> None:
        patch.setattr(writer, "commit", real)
        before(connection)
        if after:
            real(connection)
        raise _error()

    patch.setattr(writer, "commit", commit)


def _nothing(_connection: sqlite3.Connection) -> None:
    """Let the connection be."""


def test_a_commit_that_failed_took_nothing_and_may_be_repeated(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = claimed(store)
    store.append(batch(1, 3, epoch))
    _fail_commit(monkeypatch, _nothing, after=False)
    with pytest.raises(Unavailable, match="disk I/O error") as caught:
        store.append(batch(4, 3, epoch), [ended(1)])
    assert caught.value.code == "ledger.io"
    assert store.last() == (3, T0)
    store.append(batch(4, 2, epoch))
    assert len(list(store.tail(0))) == 5
    assert store.reader().page(HistoryQuery()) == []


def test_a_commit_that_was_kept_in_spite_of_its_error_counts(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = claimed(store)
    _fail_commit(monkeypatch, _nothing, after=True)
    store.append(batch(1, 3, epoch), [ended(1)])
    assert store.last() == (3, T0)
    store.append([event(4, epoch)])


def test_a_broken_connection_is_replaced_and_the_ledger_decides(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = claimed(store)
    _fail_commit(monkeypatch, sqlite3.Connection.close, after=False)
    with pytest.raises(Unavailable):
        store.append(batch(1, 3, epoch))
    assert store.last() == (0, 0)
    store.append(batch(1, 3, epoch))
    assert store.last() == (3, T0)


def _committed_then_broken(connection: sqlite3.Connection) -> None:
    """The connection is lost after COMMIT did its work and before it said so."""
    connection.execute("COMMIT")
    connection.close()


def test_a_batch_that_recovery_finds_is_made_durable_and_counts(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = claimed(store)
    reader = store.reader()
    reader.page(HistoryQuery())  # without a second connection the closing one would empty the log
    _fail_commit(monkeypatch, _committed_then_broken, after=False)
    store.append(batch(1, 3, epoch), [ended(1)])
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"ledger.db{suffix}").rename(tmp_path / f"gone{suffix}")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "copied.db")
    assert verify(tmp_path / "copied.db").last == 3
    reader.close()


def test_a_batch_that_cannot_be_made_durable_is_unknown(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect.connect, "__defaults__", (0.05,))
    epoch = claimed(store)
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as reading:
        reading.execute("BEGIN")
        reading.execute("SELECT * FROM meta").fetchall()
        _fail_commit(monkeypatch, _committed_then_broken, after=False)
        with pytest.raises(Unavailable) as caught:
            store.append(batch(1, 3, epoch))
    assert caught.value.code == "ledger.unknown"
    again = open_store(tmp_path)
    assert again.last() == (3, T0)
    again.close()


def test_an_event_of_another_owner_in_its_place_is_not_taken_for_it(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = claimed(store)
    other = open_store(tmp_path)

    def taken(connection: sqlite3.Connection) -> None:
        connection.rollback()
        other.append([event(1, claimed(other))])

    _fail_commit(monkeypatch, taken, after=False)
    with pytest.raises(Unavailable):
        store.append([event(1, epoch)])
    other.close()


def test_when_nobody_can_say_all_work_is_refused_until_the_store_is_opened_again(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = claimed(store)

    def unopenable(*_: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    def breaks(connection: sqlite3.Connection) -> None:
        connection.close()
        monkeypatch.setattr(connect, "connect", unopenable)

    _fail_commit(monkeypatch, breaks, after=False)
    with pytest.raises(Unavailable) as caught:
        store.append([event(1, epoch)])
    assert caught.value.code == "ledger.unknown"
    monkeypatch.undo()
    for work in (
        lambda: store.append([event(1, epoch)]),
        store.last,
        lambda: list(store.tail(0)),
        store.load_snapshot,
    ):
        with pytest.raises(Unavailable, match="can't be told"):
            work()
    again = open_store(tmp_path)
    assert again.last() == (0, 0)
    again.close()


@pytest.mark.parametrize("after", [True, False])
def test_other_writes_say_that_they_failed_and_may_be_repeated(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    epoch = claimed(store)
    store.append([event(1, epoch)])
    _fail_commit(monkeypatch, _nothing, after=after)
    with pytest.raises(Unavailable):
        store.save_snapshot(Snapshot(1, T0, 1, {"a": 1}))
    store.save_snapshot(Snapshot(1, T0, 1, {"a": 2}))
    assert store.load_snapshot() == Snapshot(1, T0, 1, {"a": 2})
    _fail_commit(monkeypatch, _nothing, after=after)
    with pytest.raises(Unavailable):
        store.claim(5)
    new_epoch = store.claim(5)
    assert new_epoch > epoch
    store.append([event(2, new_epoch)])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (_error("database or disk is full", sqlite3.SQLITE_FULL), "ledger.disk-full"),
        (_error("database is locked", sqlite3.SQLITE_BUSY_SNAPSHOT), "ledger.locked"),
        (
            _error("attempt to write a readonly database", sqlite3.SQLITE_READONLY_DBMOVED),
            "ledger.read-only",
        ),
        (_error("unable to open database file", sqlite3.SQLITE_CANTOPEN), "ledger.permission"),
        (_error("disk I/O error", sqlite3.SQLITE_IOERR_WRITE), "ledger.io"),
        (_error("out of memory", sqlite3.SQLITE_NOMEM), "ledger.io"),
        (_error("database disk image is malformed", sqlite3.SQLITE_CORRUPT_VTAB), "ledger.damaged"),
        (_error("file is not a database", sqlite3.SQLITE_NOTADB), "ledger.damaged"),
        (OSError(28, "No space left on device"), "ledger.disk-full"),
        (OSError(122, "Disk quota exceeded"), "ledger.disk-full"),
        (OSError(30, "Read-only file system"), "ledger.read-only"),
        (OSError(13, "Permission denied"), "ledger.permission"),
        (OSError(5, "Input/output error"), "ledger.io"),
    ],
)
def test_every_error_has_its_code_its_place_and_what_to_do(
    tmp_path: Path, error: Exception, code: str
) -> None:
    shown = explain(error, tmp_path / "ledger.db", "write to")
    assert shown.code == code
    assert str(tmp_path / "ledger.db") in shown.message
    assert shown.path == str(tmp_path / "ledger.db")
    assert shown.hint
    if code in ("ledger.disk-full", "ledger.io"):
        assert "bytes free" in shown.message


def test_an_io_error_on_a_disk_with_no_room_left_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.store.faults.free_bytes", lambda _path: 0)
    shown = explain(
        _error("disk I/O error", sqlite3.SQLITE_IOERR_SHMSIZE), tmp_path / "ledger.db", "write to"
    )
    assert shown.code == "ledger.disk-full"
