"""The journal: what it folds to, what a crash at any byte or a full disk leaves, what moves to the history."""

from __future__ import annotations

import copy
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent import journal as journal_module
from orchestrator.agent import outcome, records
from orchestrator.agent.history import History
from orchestrator.agent.idset import IdSet
from orchestrator.agent.journal import Journal, JournalError
from orchestrator.agent.records import Entry, Memory, intent
from orchestrator.model.clock import ManualClock
from orchestrator.model.ids import AttemptId


def open_journal(folder: Path, keep_count: int = 100, clock: ManualClock | None = None) -> Journal:
    return Journal(str(folder), History(str(folder), 1000, keep_count, clock or ManualClock()))


def ended(job: int) -> Entry:
    return records.event(outcome.never_started(AttemptId(job, 1), 5), 0)


def started(job: int, offset: int) -> Entry:
    plain = {"n": 0, "t_us": 7, "kind": "started", "attempt": [job, 1], "started": True, "pids": [1]}
    return records.event(plain, offset)


def state(journal: Journal) -> Any:
    memory = journal.memory
    return copy.deepcopy(
        (
            memory.outbox,
            memory.epoch,
            memory.next_n,
            memory.events,
            {attempt: records.entry_of_record(record) for attempt, record in memory.records.items()},
        )
    )


def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.commit([{"k": "epoch", "epoch": 9}, intent(AttemptId(1, 1), {"job": "x"}, "boot", run=True)])
    journal.commit([started(1, 40), ended(2)])
    again = open_journal(tmp_path)
    assert state(again) == state(journal)
    assert again.memory.records[AttemptId(1, 1)].offset == 40
    assert list(again.memory.events) == [1, 2]


def test_numbers_are_gapless_over_commits_and_restarts(tmp_path: Path) -> None:
    for job in range(1, 6):
        journal = open_journal(tmp_path)
        journal.commit([ended(job)])
        journal.close()
    assert [event["attempt"][0] for event in open_journal(tmp_path).memory.events.values()] == [1, 2, 3, 4, 5]
    assert list(open_journal(tmp_path).memory.events) == [1, 2, 3, 4, 5]


def test_outbox_has_one_name_for_its_whole_life(tmp_path: Path) -> None:
    name = open_journal(tmp_path / ".").memory.outbox
    assert len(name) == 16
    assert open_journal(tmp_path).memory.outbox == name


def test_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.commit([ended(1)])
    before = state(journal)
    journal.commit([ended(2)])
    path = tmp_path / "journal.jsonl"
    data = path.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(data)):
        path.write_bytes(data[:cut])
        again = open_journal(tmp_path)
        assert state(again) == before
        again.close()


def test_damage_before_the_end_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.commit([ended(1)])
    path = tmp_path / "journal.jsonl"
    data = bytearray(path.read_bytes())
    data[12] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(JournalError, match="damaged at byte 0"):
        open_journal(tmp_path)


def test_full_disk_leaves_nothing_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path)
    journal.commit([ended(1)])
    before = state(journal)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[: len(data) // 2], at))
    with pytest.raises(JournalError, match="No space left on device"):
        journal.commit([ended(2), ended(3)])
    assert state(journal) == before
    assert state(open_journal(tmp_path)) == before
    monkeypatch.undo()
    journal.commit([ended(3)])
    assert [event["attempt"] for event in journal.memory.events.values()] == [[1, 1], [3, 1]]
    assert state(open_journal(tmp_path)) == state(journal)


def test_failed_fsync_means_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file holds after a failed fsync is unknown: the next commit writes a new one from memory."""
    journal = open_journal(tmp_path)
    journal.commit([ended(1)])
    inode = (tmp_path / "journal.jsonl").stat().st_ino

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(JournalError):
        journal.commit([ended(2)])
    monkeypatch.undo()
    journal.commit([ended(3)])
    assert (tmp_path / "journal.jsonl").stat().st_ino != inode
    assert state(open_journal(tmp_path)) == state(journal)


def test_rewriting_keeps_what_is_live_or_unsent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "REWRITE_BYTES", 300)
    journal = open_journal(tmp_path)
    live = AttemptId(99, 1)
    journal.commit([intent(live, {"job": "y"}, "boot", run=True), started(99, 10)])
    for job in range(1, 30):
        journal.commit([intent(AttemptId(job, 1), {"job": "z"}, "boot", run=False), ended(job)])
        journal.acked(journal.memory.next_n - 2)
    assert journal.rewrites > 3
    assert (tmp_path / "journal.jsonl").stat().st_size < 2500
    again = open_journal(tmp_path)
    assert again.memory.records[live].started
    assert list(again.memory.events)[-1] == journal.memory.next_n - 1
    assert all(AttemptId(job, 1) in again.memory.ids for job in range(1, 30))
    assert {tuple(each["attempt"]) for each in again.inventory()} == {(job, 1) for job in [*range(1, 30), 99]}
    known = again.final_event(AttemptId(1, 1))
    assert known is not None
    assert known["kind"] == "ended"


def test_inventory_leaves_out_what_was_never_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path)
    refused, over = AttemptId(1, 1), AttemptId(2, 1)
    for attempt in (refused, over):
        journal.commit([intent(attempt, {"job": "z"}, "boot", run=True)])
    journal.commit(
        [records.event(outcome.prepare_failed(refused, 5, "workdir-missing", "gone"), 0), ended(2)]
    )
    assert [each["attempt"] for each in journal.inventory()] == [[2, 1]]
    journal.acked(2)
    monkeypatch.setattr(journal_module, "REWRITE_BYTES", 0)
    journal._rewrite_at = 0
    journal.commit([])
    assert journal.memory.records == {}
    assert [each["attempt"] for each in journal.inventory()] == [[2, 1]]
    known = journal.final_event(refused)
    assert known is not None
    assert known["code"] == "workdir-missing"


def test_history_is_bounded_by_count_and_age(tmp_path: Path) -> None:
    clock = ManualClock()
    history = History(str(tmp_path), keep_s=100, keep_count=4, clock=clock)
    memory = Memory(IdSet())
    for job in range(12):
        history.add([memory.of(AttemptId(job, 1))])
    assert [each["attempt"][0] for each in history.holdings()] == [8, 9, 10, 11]
    assert len((tmp_path / "history.jsonl").read_bytes().splitlines()) <= 5
    clock.advance(101)
    assert history.holdings() == []


def test_history_survives_half_a_line(tmp_path: Path) -> None:
    history = History(str(tmp_path), 100, 10, ManualClock())
    memory = Memory(IdSet())
    history.add([memory.of(AttemptId(1, 1))])
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes() + b'{"t": 1, "att')
    history.add([memory.of(AttemptId(2, 1))])
    assert [each["attempt"][0] for each in history.holdings()] == [1, 2]


ENTRIES = st.one_of(
    st.builds(lambda job, run: intent(AttemptId(job, 1), {}, "b", run=run), st.integers(1, 5), st.booleans()),
    st.builds(ended, st.integers(1, 5)),
    st.builds(started, st.integers(1, 5), st.integers(0, 99)),
    st.builds(lambda epoch: {"k": "epoch", "epoch": epoch}, st.integers(1, 9)),
)


@pytest.mark.property
@given(st.lists(st.lists(ENTRIES, max_size=3), max_size=8), st.data())
def test_a_crash_at_any_byte_leaves_the_entries_before_it(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[Entry]], data: st.DataObject
) -> None:
    """In order and none in part; of a commit that was cut the first entries may be there, which promise less."""
    folder = tmp_path_factory.mktemp("journal")
    journal = open_journal(folder)
    path = folder / "journal.jsonl"
    first = path.stat().st_size
    for entries in commits:
        journal.commit(entries)
    journal.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(first, len(whole)))
    path.write_bytes(whole[:cut])
    expected = Memory(IdSet())
    for line in whole[:cut].splitlines(keepends=True):
        if line.endswith(b"\n"):
            expected.fold(json.loads(line[9:]))
    again = open_journal(folder)
    journal.memory = expected
    assert state(again) == state(journal)
    again.close()


def test_a_changed_digit_is_damage_although_it_reads_well(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.commit([started(1, 40)])
    journal.commit([ended(2)])
    journal.close()
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"offset":40', b'"offset":41'))
    with pytest.raises(JournalError, match="damaged at byte"):
        open_journal(tmp_path)


def test_a_controller_that_acknowledges_what_was_never_sent_loses_nothing(tmp_path: Path) -> None:
    """It speaks of an older outbox, say: the next events have numbers that it has named already."""
    journal = open_journal(tmp_path)
    journal.commit([started(1, 1)])
    journal.acked(500)
    journal.commit([ended(2)])
    assert list(journal.memory.events) == [2]
    assert journal.memory.settled() == [], "the controller does not know of its end"
    assert list(open_journal(tmp_path).memory.events) == [2]
