"""The store's contract on SQLite, and what is SQLite's own: settings, modes of files, damage."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.clock import ManualClock
from orchestrator.model.errors import Conflict, GanglineError, Unavailable
from orchestrator.store import connect
from orchestrator.store.base import HistoryQuery, Snapshot
from orchestrator.store.faults import Damaged
from orchestrator.store.history import page_statement
from orchestrator.store.open import open_store
from orchestrator.store.sqlite import SqliteStore
from tests.store.contract import DAY, T0, StoreContract, batch, claimed, ended, event, ten_days


class SqliteLedger:
    """A ledger in a folder of the test's own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.path = state / connect.NAME
        self.opened: list[SqliteStore] = []

    def open(self) -> SqliteStore:
        self.opened.append(open_store(self.state, ManualClock()))
        return self.opened[-1]

    def spoil_snapshot(self, seq: int) -> None:
        self.execute("UPDATE snapshots SET body = zeroblob(length(body)) WHERE seq = ?", seq)

    def execute(self, statement: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    ledger = SqliteLedger(tmp_path / "state")
    yield ledger
    for store in ledger.opened:
        store.close()


@pytest.fixture
def store(ledger: SqliteLedger) -> SqliteStore:
    return ledger.open()


class TestSqlite(StoreContract):
    """SQLite keeps the contract."""


def _writer_pragma(store: SqliteStore, name: str) -> Any:
    return store._writer.read(f"PRAGMA {name}")[0][0]


def test_the_writer_syncs_every_commit_and_waits_for_locks(store: SqliteStore) -> None:
    assert _writer_pragma(store, "journal_mode") == "wal"
    assert _writer_pragma(store, "synchronous") == 2  # FULL
    assert _writer_pragma(store, "foreign_keys") == 1
    assert _writer_pragma(store, "busy_timeout") == 1000 * connect.BUSY_S


def test_files_are_the_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "a" / "state")
        store.append([event(1, claimed(store))])
        store.backup(str(tmp_path / "backup"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "state").stat().st_mode) == 0o700
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a" / "state").iterdir()}
    assert files == dict.fromkeys(["ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.lock"], 0o600)
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600
    store.close()


def test_a_file_that_others_could_read_is_closed_to_them(ledger: SqliteLedger) -> None:
    ledger.open().close()
    ledger.path.chmod(0o644)
    ledger.open()
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["with space", "a#b?c%20d", "ü", "a'b\"c", "50%"])
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name)
    store.append([event(1, claimed(store))], [ended(1)])
    assert store.reader().job(1) == ended(1)
    store.backup(str(tmp_path / f"backup {name}"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "h") == [name]
    store.close()


def test_a_ledger_belongs_to_the_cluster_that_claimed_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, cluster="atlas")
    open_store(tmp_path, cluster="other").close()  # nobody has claimed it yet
    claimed(store)
    with pytest.raises(Conflict, match="belongs to cluster atlas, not to other"):
        open_store(tmp_path, cluster="other")
    open_store(tmp_path).close()
    open_store(tmp_path, cluster="atlas").close()
    store.close()


def test_a_lock_held_for_too_long_is_told_and_work_goes_on_after_it(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect.connect, "__defaults__", (0.05,))
    store = ledger.open()
    epoch = claimed(store)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="another process holds it") as caught:
            store.append([event(1, epoch)])
        assert caught.value.code == "ledger.locked"
        assert str(ledger.path) in caught.value.hint
        assert store.last() == (0, 0)
        other.execute("ROLLBACK")
    store.append([event(1, epoch)])


def test_a_reader_cannot_write(store: SqliteStore) -> None:
    reader = store.reader()
    with pytest.raises(Exception, match="readonly"):
        reader._connection.exec_driver_sql("UPDATE meta SET epoch = 0")
    reader.close()


def test_a_reader_is_not_held_up_by_an_open_transaction(store: SqliteStore) -> None:
    store.append([event(1, claimed(store))], [ended(1)])
    reader = store.reader()
    with store._writer.repeatable("test") as (connection, _):
        connection.execute("DELETE FROM history")
        assert reader.page(HistoryQuery()) == [ended(1)]
    assert reader.page(HistoryQuery()) == []


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (HistoryQuery(owner="a"), "history_owner (owner=?)"),
        (HistoryQuery(owner="a", before=9), "history_owner (owner=? AND job<?)"),
        (HistoryQuery(queue="a"), "history_queue (queue=?)"),
        (HistoryQuery(name="a"), "history_name (name=?)"),
        (HistoryQuery(states=("failed",)), "history_state (state=?)"),
        (HistoryQuery(since_us=5), "history_ended (ended_us>?)"),
    ],
)
def test_each_filter_has_its_index_and_no_page_is_sorted(
    store: SqliteStore, query: HistoryQuery, index: str
) -> None:
    statement = str(page_statement(query).compile(compile_kwargs={"literal_binds": True}))
    plan = [row[3] for row in store._writer.read(f"EXPLAIN QUERY PLAN {statement}")]
    assert any(index in line for line in plan), plan
    assert not any("TEMP B-TREE" in line for line in plan), plan


def test_prune_in_small_steps_leaves_no_gap_in_between(ledger: SqliteLedger, store: SqliteStore) -> None:
    ten_days(store)
    store.save_snapshot(Snapshot(100, T0, 1, {}))
    steps = []
    while gone := store.prune(3, T0 + 9 * DAY, at_most=25):
        steps.append(gone)
        again = ledger.open()
        assert [found.seq for found in again.tail(sum(steps))] == list(range(sum(steps) + 1, 101))
        again.close()
    assert steps == [25, 25, 10]


# --- damage -----------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_named_damaged(ledger: SqliteLedger) -> None:
    ledger.open().close()
    ledger.path.write_bytes(b"not a database" * 1000)
    with pytest.raises(Damaged, match=r"ledger\.db is damaged") as caught:
        ledger.open()
    assert "gangline server restore" in caught.value.hint


def test_a_database_of_another_program_is_left_alone(ledger: SqliteLedger) -> None:
    ledger.state.mkdir()
    ledger.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(Damaged, match="another program"):
        ledger.open()
    assert ledger.execute("SELECT name FROM sqlite_master") == [("bookmarks",)]


def test_a_malformed_page_is_told_by_tail_as_damage(ledger: SqliteLedger) -> None:
    store = ledger.open()
    store.append(batch(1, 2000, claimed(store)))
    store.close()
    content = bytearray(ledger.path.read_bytes())
    middle = len(content) // 4096 // 2 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    ledger.path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged") as caught:
        list(ledger.open().tail(0))
    assert isinstance(caught.value, GanglineError)
    assert "gangline server restore" in caught.value.hint


@pytest.mark.parametrize(
    "change",
    [
        "body = CAST(body || x'ff' AS TEXT)",
        "body = substr(body, 1, 5)",
        "body = 5",
        "version = 9",
        "t_us = 9",
        "checksum = ''",
        "checksum = x'ff'",
    ],
)
def test_a_snapshot_changed_in_any_way_is_passed_over(ledger: SqliteLedger, change: str) -> None:
    store = ledger.open()
    store.append(batch(1, 9, claimed(store)))
    store.save_snapshot(Snapshot(4, T0, 1, {"a": 4}))
    store.save_snapshot(Snapshot(9, T0, 1, {"a": 9}))
    ledger.execute(f"UPDATE snapshots SET {change} WHERE seq = 9")
    assert store.load_snapshot() == Snapshot(4, T0, 1, {"a": 4})


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM events WHERE seq = 5", "event 5 is missing.* event 6"),
        ("UPDATE events SET body = '{' WHERE seq = 5", "body of event 5"),
        ("UPDATE events SET body = '[]' WHERE seq = 5", "body of event 5"),
        ("DROP TABLE events", "no such table"),
    ],
)
def test_a_gap_or_an_unreadable_event_is_named(ledger: SqliteLedger, statement: str, said: str) -> None:
    store = ledger.open()
    store.append(batch(1, 9, claimed(store)))
    ledger.execute(statement)
    with pytest.raises(ValueError, match=said):
        list(store.tail(0))


def test_a_write_ahead_log_without_its_ledger_is_not_papered_over(ledger: SqliteLedger) -> None:
    ledger.state.mkdir()
    (ledger.state / "ledger.db-wal").write_bytes(b"x")
    with pytest.raises(Damaged, match="its file is gone"):
        ledger.open()
    assert not ledger.path.exists()


def test_a_torn_write_ahead_log_loses_the_torn_batch_alone(ledger: SqliteLedger, tmp_path: Path) -> None:
    """As after a power cut: whatever byte the log ends at, what is there is whole batches from the first on."""
    store = ledger.open()
    epoch = claimed(store)
    for first in range(1, 200, 20):
        store.append(batch(first, 20, epoch, T0 + first * DAY // 50))
    database, log = ledger.path.read_bytes(), (ledger.state / "ledger.db-wal").read_bytes()
    ends = set()
    for cut in [*range(0, len(log), len(log) // 40), len(log)]:
        torn = SqliteLedger(tmp_path / f"torn-{cut}")
        torn.state.mkdir()
        torn.path.write_bytes(database)
        (torn.state / "ledger.db-wal").write_bytes(log[:cut])
        if cut < len(log) // 4 and not torn.execute("SELECT name FROM sqlite_master WHERE name = 'events'"):
            continue  # cut before the tables were there
        again = torn.open()
        events = list(again.tail(0))
        assert len(events) % 20 == 0
        assert [found.seq for found in events] == list(range(1, len(events) + 1))
        next_epoch = claimed(again)
        again.append([event(len(events) + 1, next_epoch, T0 + 50 * DAY)])
        again.close()
        ends.add(len(events))
    assert {200} < ends


def test_an_unsaved_snapshot_leaves_the_ledger_usable(store: SqliteStore) -> None:
    epoch = claimed(store)
    with pytest.raises(TypeError):
        store.save_snapshot(Snapshot(0, T0, 1, {"x": object()}))
    store.append([event(1, epoch)])
