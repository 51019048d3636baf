"""Backups beside a live writer, their proof, and putting one back."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.clock import ManualClock
from orchestrator.model.errors import Conflict, Fenced, NotFound
from orchestrator.store import connect, copy
from orchestrator.store.backup import backup, verify
from orchestrator.store.base import Snapshot
from orchestrator.store.faults import Damaged
from orchestrator.store.open import open_store
from orchestrator.store.restore import restore
from orchestrator.store.sqlite import SqliteStore
from tests.store.contract import DAY, T0, batch, claimed, ended, event


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = open_store(tmp_path / "state", ManualClock(T0 + DAY))
    yield store
    store.close()


def _filled(store: SqliteStore) -> int:
    epoch = claimed(store)
    store.append(batch(1, 20, epoch), [ended(1)])
    store.append(batch(21, 20, epoch, T0 + DAY), [ended(2)])
    store.save_snapshot(Snapshot(30, T0, 1, {"n": 30}))
    return epoch


def _execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


# --- backup -----------------------------------------------------------------------------------------------------


def test_a_backup_is_one_file_that_holds_all_and_says_when(store: SqliteStore, tmp_path: Path) -> None:
    epoch = _filled(store)
    target = tmp_path / "kept" / "backup"
    target.parent.mkdir()
    store.backup(str(target))
    assert [path.name for path in target.parent.iterdir()] == ["backup"]
    contents = verify(target)
    assert (contents.first, contents.last, contents.last_us) == (1, 40, T0 + DAY)
    assert (contents.backup_us, contents.epoch) == (T0 + DAY, epoch)
    assert [path.name for path in target.parent.iterdir()] == [
        "backup"
    ]  # reading it leaves nothing beside it
    assert verify(tmp_path / "state" / connect.NAME).backup_us == 0


def test_a_backup_can_be_read_where_nothing_can_be_written(store: SqliteStore, tmp_path: Path) -> None:
    _filled(store)
    store.backup(str(tmp_path / "backup"))
    assert (tmp_path / "backup").read_bytes()[
        18:20
    ] == b"\x01\x01"  # SQLite's file format: no write-ahead log


def test_a_backup_by_another_command_needs_no_store(store: SqliteStore, tmp_path: Path) -> None:
    _filled(store)
    backup(tmp_path / "state", tmp_path / "backup", ManualClock(T0 + 2 * DAY))
    assert verify(tmp_path / "backup").backup_us == T0 + 2 * DAY
    with pytest.raises(Conflict, match="exists"):
        backup(tmp_path / "state", tmp_path / "backup")
    with pytest.raises(NotFound, match="no ledger in"):
        backup(tmp_path / "elsewhere", tmp_path / "backup-2")
    assert not (tmp_path / "elsewhere").exists()


def test_a_backup_that_fails_leaves_nothing_behind(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    _filled(store)
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Exception, match="No space left on device") as caught:
        store.backup(str(folder / "backup"))
    assert getattr(caught.value, "code", "") == "ledger.disk-full"
    assert list(folder.iterdir()) == []


def test_a_backup_without_hard_links_still_replaces_nothing(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_paths: object) -> None:
        raise OSError(1, "Operation not permitted")

    _filled(store)
    monkeypatch.setattr(os, "link", no_links)
    store.backup(str(tmp_path / "backup"))
    assert verify(tmp_path / "backup").last == 40
    with pytest.raises(Conflict):
        store.backup(str(tmp_path / "backup"))


def test_a_file_that_appears_while_a_backup_is_written_is_not_replaced(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(store)
    monkeypatch.setattr(copy, "sync_file", lambda _part: (tmp_path / "backup").write_text("somebody's"))
    with pytest.raises(Conflict):
        store.backup(str(tmp_path / "backup"))
    assert (tmp_path / "backup").read_text() == "somebody's"


# --- verify -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM events WHERE seq = 7", "event 7 is missing"),
        ("UPDATE events SET body = 'x' WHERE seq = 7", "body of event 7"),
        ("UPDATE events SET t_us = t_us - 1 WHERE seq = 7", "event 7 is older"),
        ("UPDATE segments SET first_seq = 20 WHERE first_seq = 21", "list of days"),
        ("DELETE FROM segments WHERE first_seq = 21", "list of days"),
        ("DELETE FROM history WHERE job = 1", "record has no job"),
        ("DELETE FROM meta", "its head"),
        ("DROP TABLE meta", "no such table"),
        ("DROP TABLE alembic_version", "another program"),
    ],
)
def test_verify_names_what_is_wrong(store: SqliteStore, tmp_path: Path, statement: str, said: str) -> None:
    _filled(store)
    store.backup(str(tmp_path / "backup"))
    _execute(tmp_path / "backup", statement)
    with pytest.raises(Damaged, match=said):
        verify(tmp_path / "backup")


def test_verify_needs_a_snapshot_only_for_what_was_pruned(store: SqliteStore, tmp_path: Path) -> None:
    _filled(store)
    store.backup(str(tmp_path / "whole"))
    _execute(tmp_path / "whole", "UPDATE snapshots SET checksum = ''")
    verify(tmp_path / "whole")
    assert store.prune(0, T0 + 2 * DAY) == 20
    store.backup(str(tmp_path / "pruned"))
    assert verify(tmp_path / "pruned").first == 21
    _execute(tmp_path / "pruned", "UPDATE snapshots SET checksum = ''")
    with pytest.raises(Damaged, match="before 21 were pruned"):
        verify(tmp_path / "pruned")


def test_verify_finds_a_flipped_page(store: SqliteStore, tmp_path: Path) -> None:
    claimed_epoch = claimed(store)
    store.append(batch(1, 3000, claimed_epoch))
    store.backup(str(tmp_path / "backup"))
    content = bytearray((tmp_path / "backup").read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 100] = bytes(100)
    (tmp_path / "backup").write_bytes(content)
    with pytest.raises(Damaged):
        verify(tmp_path / "backup")


def test_verify_of_no_file_or_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        verify(tmp_path / "nothing")
    (tmp_path / "empty").touch()
    with pytest.raises(Damaged, match="empty"):
        verify(tmp_path / "empty")


# --- restore ----------------------------------------------------------------------------------------------------


def _names(state: Path) -> list[str]:
    return sorted(path.name for path in state.iterdir())


def test_a_restored_ledger_says_so_until_a_controller_notes_it(store: SqliteStore, tmp_path: Path) -> None:
    epoch = _filled(store)
    store.backup(str(tmp_path / "backup"))
    assert restore(tmp_path / "backup", tmp_path / "new", T0 + 5 * DAY) is None
    again = open_store(tmp_path / "new")
    assert again.restored_us() == T0 + DAY  # when the backup was made
    assert again.last() == (40, T0 + DAY)
    assert again.load_snapshot() == Snapshot(30, T0, 1, {"n": 30})
    assert again.reader().job(2) == ended(2)
    new_epoch = again.claim(0)
    assert new_epoch > epoch + 1
    again.append([event(41, new_epoch, T0 + 5 * DAY)])
    assert again.restored_us() == T0 + DAY
    again.append([event(42, new_epoch, T0 + 5 * DAY)], restore_noted=True)
    assert again.restored_us() == 0
    again.close()


def test_the_replaced_ledger_is_kept_and_its_owner_outranked(store: SqliteStore, tmp_path: Path) -> None:
    _filled(store)
    store.backup(str(tmp_path / "backup"))
    later = store.claim(2_000_000_000)
    store.append([event(41, later, T0 + DAY)])
    store.close()
    aside = restore(tmp_path / "backup", tmp_path / "state", T0 + DAY)
    assert aside == tmp_path / "state" / "ledger.db.replaced-20261201T000000Z"
    assert verify(aside).last == 41
    assert _names(tmp_path / "state") == ["ledger.db", aside.name, "ledger.lock"]
    again = open_store(tmp_path / "state")
    assert again.last()[0] == 40
    assert again.claim(0) > later + 1
    again.close()
    # And back again, in the same second: the name gets a number, nothing is lost.
    second = restore(aside, tmp_path / "state", T0 + DAY)
    assert second is not None
    assert second.name == "ledger.db.replaced-20261201T000000Z-2"
    assert verify(tmp_path / "state" / "ledger.db").last == 41


def test_a_copy_without_a_time_of_its_own_is_as_old_as_its_last_event(
    store: SqliteStore, tmp_path: Path
) -> None:
    _filled(store)
    store.close()
    shutil.copy(tmp_path / "state" / "ledger.db", tmp_path / "copied")
    restore(tmp_path / "copied", tmp_path / "new", T0 + 9 * DAY)
    again = open_store(tmp_path / "new")
    assert again.restored_us() == T0 + DAY
    again.close()


def test_no_restore_under_a_running_controller(store: SqliteStore, tmp_path: Path) -> None:
    epoch = _filled(store)
    store.backup(str(tmp_path / "backup"))
    with pytest.raises(Conflict, match="has it open") as caught:
        restore(tmp_path / "backup", tmp_path / "state", T0)
    assert caught.value.code == "ledger.in-use"
    store.append([event(41, epoch, T0 + DAY)])
    assert _names(tmp_path / "state") == ["ledger.db", "ledger.db-shm", "ledger.db-wal", "ledger.lock"]


def test_a_damaged_backup_changes_nothing(store: SqliteStore, tmp_path: Path) -> None:
    _filled(store)
    store.backup(str(tmp_path / "backup"))
    store.close()
    _execute(tmp_path / "backup", "DELETE FROM events WHERE seq = 7")
    with pytest.raises(Damaged) as told:
        restore(tmp_path / "backup", tmp_path / "state", T0)
    assert "choose another backup" in told.value.hint
    with pytest.raises(NotFound):
        restore(tmp_path / "no-backup", tmp_path / "state", T0)
    assert verify(tmp_path / "state" / "ledger.db").last == 40
    assert _names(tmp_path / "state") == ["ledger.db", "ledger.lock"]


def test_a_damaged_ledger_is_replaced_with_all_that_lies_beside_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    _filled(store)
    store.backup(str(tmp_path / "backup"))
    store.close()
    state = tmp_path / "state"
    (state / "ledger.db").write_bytes(b"garbage" * 999)
    (state / "ledger.db-wal").write_bytes(b"more")
    aside = restore(tmp_path / "backup", state, T0)
    assert aside is not None
    assert aside.read_bytes() == b"garbage" * 999
    assert aside.with_name(f"{aside.name}-wal").read_bytes() == b"more"
    assert verify(state / "ledger.db").last == 40
    open_store(state).close()


def test_a_restore_cut_off_before_its_end_leaves_the_old_ledger_and_can_be_repeated(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = _filled(store)
    store.backup(str(tmp_path / "backup"))
    store.append([event(41, epoch, T0 + DAY)])
    store.close()

    class Cut(BaseException):
        """The process dies here."""

    def cut(*_: object) -> None:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut)
        patch.setattr(Path, "unlink", lambda *_args, **_more: None)  # the dead tidy nothing up
        with pytest.raises(Cut):
            restore(tmp_path / "backup", tmp_path / "state", T0)
    again = open_store(tmp_path / "state")
    assert again.last()[0] == 41
    assert again.restored_us() == 0
    again.close()
    restore(tmp_path / "backup", tmp_path / "state", T0)
    assert verify(tmp_path / "state" / "ledger.db").last == 40


def test_an_owner_that_the_lock_did_not_hold_off_is_fenced(store: SqliteStore, tmp_path: Path) -> None:
    """As where a lock does not reach, between containers that share a volume but no lock file."""
    epoch = _filled(store)
    store.backup(str(tmp_path / "backup"))
    (tmp_path / "state" / "ledger.lock").unlink()
    restore(tmp_path / "backup", tmp_path / "state", T0)
    with pytest.raises(Fenced):
        store.append([event(41, epoch, T0 + DAY)])
