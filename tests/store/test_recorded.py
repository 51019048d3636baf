"""A recorded ledger is read as it is: beside its writer, from a backup, and when its first days were pruned."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.model.clock import ManualClock
from orchestrator.model.errors import NotFound
from orchestrator.store.backup import backup
from orchestrator.store.base import Snapshot
from orchestrator.store.faults import Damaged
from orchestrator.store.open import open_store
from orchestrator.store.recorded import Recorded
from tests.store.contract import DAY, T0, batch, claimed


def test_a_ledger_is_read_beside_its_writer_and_from_a_backup(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state", ManualClock(T0))
    store.append(batch(1, 2500, claimed(store)))  # more than a page
    backup(tmp_path / "state", tmp_path / "copy", ManualClock(T0))

    for path in (tmp_path / "state", tmp_path / "copy"):
        recorded = Recorded(path)
        assert recorded.snapshot() is None
        assert [event.seq for event in recorded.events(0)] == list(range(1, 2501))
        assert next(recorded.events(2000)).seq == 2001
    store.close()


def test_events_that_were_pruned_are_in_a_snapshot(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state", ManualClock(T0))
    epoch = claimed(store)
    store.append(batch(1, 10, epoch))
    store.append(batch(11, 10, epoch, T0 + 40 * DAY))
    for seq in (12, 15):
        store.save_snapshot(Snapshot(seq, T0, 1, {"n": seq}))
    assert store.prune(30, T0 + 40 * DAY) == 10

    recorded = Recorded(tmp_path / "state")
    snapshot = recorded.snapshot()
    assert snapshot is not None
    assert snapshot.body == {"n": 12}  # the oldest: as much as can be is read again
    assert [event.seq for event in recorded.events(snapshot.seq)] == list(range(13, 21))
    assert next(recorded.events(0)).seq == 11
    store.close()


def test_without_a_snapshot_of_them_there_is_nothing_to_begin_from(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state", ManualClock(T0))
    epoch = claimed(store)
    store.append(batch(1, 10, epoch))
    store.append(batch(11, 10, epoch, T0 + 40 * DAY))
    store.save_snapshot(Snapshot(12, T0, 1, {}))
    store.prune(30, T0 + 40 * DAY)
    store._writer.read("DELETE FROM snapshots")
    store.close()

    with pytest.raises(Damaged, match="before 11"):
        Recorded(tmp_path / "state").snapshot()


def test_an_empty_ledger_has_nothing(tmp_path: Path) -> None:
    open_store(tmp_path / "state", ManualClock(T0)).close()
    recorded = Recorded(tmp_path / "state")

    assert (recorded.snapshot(), list(recorded.events(0))) == (None, [])


@pytest.mark.parametrize("name", ["", "none"])
def test_what_is_no_ledger_is_said_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound):
        Recorded(tmp_path / name)
