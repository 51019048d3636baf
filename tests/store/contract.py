"""What every engine of the store must do; an engine's tests subclass StoreContract and say how one is opened.

In comes a `ledger` fixture: an object whose `open()` gives another Store on the same ledger, and whose
`spoil_snapshot(seq)` changes a byte of a kept one. Builders for events and ended jobs are here too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from orchestrator.ledger.events import StoredEvent
from orchestrator.model.errors import Conflict, Fenced
from orchestrator.store.base import AppliedRow, HistoryQuery, HistoryRow, KeyRow, Snapshot, Store

DAY = 24 * 3600 * 1_000_000
T0 = 1_796_000_000_000_000 // DAY * DAY  # a midnight, UTC


class Ledger(Protocol):
    """One ledger of an engine under test."""

    def open(self) -> Store:
        """Another store on it."""

    def spoil_snapshot(self, seq: int) -> None:
        """Damage the snapshot after event `seq`."""


def event(seq: int, epoch: int, t_us: int = T0, batch: int = 0, **body: Any) -> StoredEvent:
    return StoredEvent(seq, t_us, epoch, "job.submitted", 1, f"job/{seq}", batch or seq, "user:alice", body)


def batch(first: int, count: int, epoch: int, t_us: int = T0) -> list[StoredEvent]:
    """Events committed together; each says how many they are, so that a torn batch shows."""
    return [event(seq, epoch, t_us, batch=first, of=count) for seq in range(first, first + count)]


def ended(job: int, **changes: Any) -> HistoryRow:
    row = HistoryRow(
        job, f"train-{job}", "alice", "research", "succeeded", 0, T0 + job, T0 + 10 * job, {"id": job}
    )
    return replace(row, **changes)


def applied(seq: int, **changes: Any) -> AppliedRow:
    row = AppliedRow(seq, T0 + seq, "user:alice", f"digest-{seq}", "0123abc", 1, {"spec": {"name": "atlas"}})
    return replace(row, **changes)


def claimed(store: Store) -> int:
    return store.claim(1_796_000_000)


def ten_days(store: Store) -> None:
    """Ten days of ten events each; day d has events 10 d + 1 to 10 d + 10."""
    epoch = claimed(store)
    for day in range(10):
        first = 10 * day + 1
        store.append([event(first + n, epoch, T0 + day * DAY + n) for n in range(10)])


class StoreContract:
    """Tests of one engine. Names tell the story; `ledger` is the engine's own fixture."""

    @pytest.fixture
    def store(self, ledger: Ledger) -> Any:
        store = ledger.open()
        yield store
        store.close()

    # --- events -------------------------------------------------------------------------------------------------

    def test_an_empty_ledger_has_nothing(self, store: Store) -> None:
        assert store.last() == (0, 0)
        assert list(store.tail(0)) == []
        assert store.load_snapshot() is None
        assert store.restored_us() == 0

    def test_events_come_back_as_they_were_after_reopening(self, ledger: Ledger, store: Store) -> None:
        epoch = claimed(store)
        text = "ünïcode \u2028 \x00 'quoted' \ud800"
        written = [
            event(1, epoch, text=text, nested={"list": [1, -5, True, None, 1.5, []]}, big=2**70),
            event(2, epoch, T0 + 5),
            event(3, epoch, T0 + 5),
        ]
        store.append(written[:2])
        store.append(written[2:])
        again = ledger.open()
        assert list(again.tail(0)) == written
        assert list(again.tail(2)) == written[2:]
        assert again.last() == (3, T0 + 5)
        again.close()

    def test_a_long_tail_is_read_to_its_end_while_it_grows(self, store: Store) -> None:
        epoch = claimed(store)
        store.append(batch(1, 2500, epoch))
        seen = []
        for found in store.tail(0):
            seen.append(found.seq)
            if found.seq == 1200:
                store.append(batch(2501, 5, epoch))
        assert seen == list(range(1, 2506))

    @pytest.mark.parametrize("count", [*range(1, 20), 63, 64, 65, 127, 200])
    def test_a_batch_of_any_size_is_kept_whole_and_in_order(self, store: Store, count: int) -> None:
        epoch = claimed(store)
        written = batch(1, count, epoch)
        jobs = [ended(job) for job in range(1, count + 1)]
        keys = [KeyRow(f"key-{job}", job, f"digest-{job}", T0) for job in range(1, count + 1)]
        store.append(written, jobs, keys=keys)
        assert list(store.tail(0)) == written
        assert [store.key(key.key) for key in keys] == keys
        reader = store.reader()
        assert [reader.job(row.job) for row in jobs] == jobs
        reader.close()

    def test_a_position_beyond_the_end_is_an_error(self, store: Store) -> None:
        store.append(batch(1, 3, claimed(store)))
        with pytest.raises(ValueError, match="ends at event 3"):
            list(store.tail(4))

    @pytest.mark.parametrize(
        ("first", "t_us", "wrong_epoch", "said"),
        [
            (5, T0, 0, "does not continue a ledger that ends at 3"),
            (3, T0, 0, "does not continue a ledger that ends at 3"),
            (4, T0 - 1, 0, "older"),
            (4, T0, 1, "epoch"),
        ],
    )
    def test_events_that_do_not_continue_the_ledger_are_refused(
        self, store: Store, first: int, t_us: int, wrong_epoch: int, said: str
    ) -> None:
        epoch = claimed(store)
        store.append(batch(1, 3, epoch))
        with pytest.raises(ValueError, match=said):
            store.append([event(first, epoch + wrong_epoch, t_us)], [ended(7)])
        assert store.last() == (3, T0)
        assert store.reader().job(7) is None
        store.append([event(4, epoch)])

    def test_a_gap_or_a_step_back_within_a_batch_is_refused(self, store: Store) -> None:
        epoch = claimed(store)
        for wrong in ([event(1, epoch), event(3, epoch)], [event(1, epoch, T0 + 1), event(2, epoch, T0)]):
            with pytest.raises(ValueError, match=r"event [23]"):
                store.append(wrong)
        assert store.last() == (0, 0)

    @pytest.mark.parametrize("body", [{"x": float("nan")}, {"x": object()}, {"x": {1, 2}}])
    def test_a_body_that_is_no_json_is_refused_before_anything_is_written(
        self, store: Store, body: Any
    ) -> None:
        epoch = claimed(store)
        with pytest.raises((ValueError, TypeError)):
            store.append([event(1, epoch), event(2, epoch, **body)])
        assert store.last() == (0, 0)

    # --- owners -------------------------------------------------------------------------------------------------

    def test_a_claim_is_above_every_earlier_one_and_the_clock(self, ledger: Ledger, store: Store) -> None:
        assert store.claim(1000) == 1000
        assert store.claim(500) == 1001
        other = ledger.open()
        assert other.claim(1001) == 1002
        assert other.claim(5000) == 5000
        other.close()

    def test_a_store_that_was_not_claimed_writes_nothing(self, store: Store) -> None:
        with pytest.raises(ValueError, match="claim"):
            store.append([event(1, 0)])
        with pytest.raises(ValueError, match="claim"):
            store.save_snapshot(Snapshot(0, 0, 1, {}))

    def test_every_write_of_an_older_owner_is_fenced(self, ledger: Ledger, store: Store) -> None:
        epoch = claimed(store)
        store.append(batch(1, 3, epoch))
        store.append([event(4, epoch, T0 + 40 * DAY)])
        store.save_snapshot(Snapshot(4, T0, 1, {"n": 4}))
        newer = ledger.open()
        newer_epoch = claimed(newer)
        attempts: list[Callable[[], object]] = [
            lambda: store.append([event(5, epoch, T0 + 40 * DAY)], [ended(1)]),
            lambda: store.append([], [ended(1)]),
            lambda: store.save_snapshot(Snapshot(4, T0, 1, {"n": 5})),
            lambda: store.prune(30, T0 + 60 * DAY),
            lambda: store.forget_keys(T0 + 60 * DAY),
        ]
        for attempt in attempts:
            with pytest.raises(Fenced, match=str(newer_epoch)):
                attempt()
        assert newer.last() == (4, T0 + 40 * DAY)
        assert newer.reader().job(1) is None
        assert newer.load_snapshot() == Snapshot(4, T0, 1, {"n": 4})
        newer.append([event(5, newer_epoch, T0 + 40 * DAY)])
        assert [found.epoch for found in newer.tail(3)] == [epoch, newer_epoch]
        newer.close()

    # --- snapshots ----------------------------------------------------------------------------------------------

    def test_the_last_three_snapshots_are_kept_and_damaged_ones_passed_over(
        self, ledger: Ledger, store: Store
    ) -> None:
        store.append(batch(1, 50, claimed(store)))
        taken = {
            seq: Snapshot(seq, T0, 2, {"jobs": {str(n): "x" * n for n in range(seq)}})
            for seq in (10, 20, 30, 40)
        }
        for snapshot in taken.values():
            store.save_snapshot(snapshot)
        assert store.load_snapshot() == taken[40]
        ledger.spoil_snapshot(40)
        assert store.load_snapshot() == taken[30]
        ledger.spoil_snapshot(30)
        assert store.load_snapshot() == taken[20]
        ledger.spoil_snapshot(20)
        assert store.load_snapshot() is None

    def test_a_snapshot_may_be_taken_again(self, store: Store) -> None:
        store.append(batch(1, 5, claimed(store)))
        store.save_snapshot(Snapshot(5, T0, 1, {"a": 1}))
        store.save_snapshot(Snapshot(5, T0, 2, {"a": 2}))
        assert store.load_snapshot() == Snapshot(5, T0, 2, {"a": 2})

    def test_a_snapshot_of_what_the_ledger_does_not_hold_is_refused(self, store: Store) -> None:
        store.append(batch(1, 5, claimed(store)))
        with pytest.raises(ValueError, match="ends at 5"):
            store.save_snapshot(Snapshot(6, T0, 1, {}))

    # --- prune --------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("snapshots", "keep_days", "first_left"),
        [
            ([100], 3, 61),  # today is day 9: days 6 to 9 stay
            ([100], 0, 91),  # the newest day stays always
            ([35, 100], 3, 31),  # both snapshots must cover what goes
            ([40, 100], 3, 41),
            ([39, 100], 3, 31),
            ([5], 3, 1),
            ([], 3, 1),
            ([100], 30, 1),
        ],
    )
    def test_prune_drops_whole_days_that_every_snapshot_covers(
        self, store: Store, snapshots: list[int], keep_days: int, first_left: int
    ) -> None:
        ten_days(store)
        for seq in snapshots:
            store.save_snapshot(Snapshot(seq, T0, 1, {}))
        assert store.prune(keep_days, T0 + 9 * DAY + 500) == first_left - 1
        assert [found.seq for found in store.tail(first_left - 1)] == list(range(first_left, 101))
        assert store.prune(keep_days, T0 + 9 * DAY + 500) == 0
        if first_left > 1:
            with pytest.raises(ValueError, match=f"event 1 .*{first_left}"):
                list(store.tail(0))

    def test_a_damaged_snapshot_covers_nothing(self, ledger: Ledger, store: Store) -> None:
        ten_days(store)
        store.save_snapshot(Snapshot(100, T0, 1, {}))
        ledger.spoil_snapshot(100)
        assert store.prune(0, T0 + 9 * DAY) == 0
        store.save_snapshot(Snapshot(60, T0, 1, {}))
        assert store.prune(0, T0 + 9 * DAY) == 60

    def test_a_pruned_ledger_goes_on(self, ledger: Ledger, store: Store) -> None:
        ten_days(store)
        store.save_snapshot(Snapshot(100, T0, 1, {}))
        store.prune(0, T0 + 30 * DAY)
        again = ledger.open()
        epoch = claimed(again)
        assert again.last() == (100, T0 + 9 * DAY + 9)
        again.append([event(101, epoch, T0 + 30 * DAY)])
        assert (
            again.prune(0, T0 + 31 * DAY) == 10
        )  # event 101 opened a new day, and the snapshot covers day 9
        assert [found.seq for found in again.tail(100)] == [101]
        again.save_snapshot(Snapshot(101, T0, 1, {}))
        again.close()

    def test_a_batch_over_midnight_begins_a_day_in_its_middle(self, store: Store) -> None:
        epoch = claimed(store)
        times = [T0, T0 + DAY - 1, T0 + DAY, T0 + 3 * DAY]
        store.append([event(seq, epoch, t_us) for seq, t_us in enumerate(times, start=1)])
        store.save_snapshot(Snapshot(4, T0, 1, {}))
        assert store.prune(2, T0 + 3 * DAY) == 2
        assert [found.seq for found in store.tail(2)] == [3, 4]

    # --- history ------------------------------------------------------------------------------------------------

    def test_an_ended_job_is_written_with_its_events_and_may_be_written_again(self, store: Store) -> None:
        epoch = claimed(store)
        store.append([event(1, epoch)], [ended(1, record={"k": ["v", 1]})])
        reader = store.reader()
        assert reader.job(1) == ended(1, record={"k": ["v", 1]})
        store.append([event(2, epoch)], [ended(1, state="failed", exit_code=9, record={}), ended(2)])
        assert reader.job(1) == ended(1, state="failed", exit_code=9, record={})
        assert reader.page(HistoryQuery(states=("succeeded",))) == [ended(2)]
        assert reader.job(3) is None
        reader.close()

    @pytest.mark.parametrize(
        ("query", "wanted"),
        [
            (HistoryQuery(), [*range(12, 0, -1)]),
            (HistoryQuery(limit=3), [12, 11, 10]),
            (HistoryQuery(limit=3, before=10), [9, 8, 7]),
            (HistoryQuery(before=1), []),
            (HistoryQuery(owner="bob"), [12, 9, 6, 3]),
            (HistoryQuery(owner="nobody"), []),
            (HistoryQuery(queue="production"), [12, 10, 8, 6, 4, 2]),
            (HistoryQuery(owner="bob", queue="production"), [12, 6]),
            (HistoryQuery(name="train-7"), [7]),
            (HistoryQuery(states=("failed",)), [12, 8, 4]),
            (HistoryQuery(states=("failed", "succeeded"), limit=2, before=5), [4, 3]),
            (HistoryQuery(since_us=T0 + 100), [12, 11, 10, 1]),  # job 1 ran long: it ended last
            (HistoryQuery(since_us=T0 + 100, limit=2, before=12), [11, 10]),
            (HistoryQuery(since_us=T0 + 100, owner="bob"), [12]),
            (HistoryQuery(since_us=T0 + 10_000), []),
        ],
    )
    def test_pages_of_history(self, store: Store, query: HistoryQuery, wanted: list[int]) -> None:
        rows = {
            job: ended(
                job,
                owner="alice" if job % 3 else "bob",
                queue="research" if job % 2 else "production",
                state="succeeded" if job % 4 else "failed",
                ended_us=T0 + (1000 if job == 1 else 10 * job),
            )
            for job in range(1, 13)
        }
        store.append([event(1, claimed(store))], list(rows.values()))
        assert store.reader().page(query) == [rows[job] for job in wanted]

    def test_a_reader_of_another_thread_sees_what_is_committed(self, store: Store) -> None:
        epoch = claimed(store)
        reader = store.reader()
        found: list[HistoryRow] = []

        def look() -> None:
            found.extend(reader.page(HistoryQuery()))

        for job in (1, 2):
            store.append([event(job, epoch)], [ended(job)])
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        assert [row.job for row in found] == [1, 2, 1]
        reader.close()

    # --- keys of submits ----------------------------------------------------------------------------------------

    def test_a_key_is_known_from_its_write_on(self, store: Store) -> None:
        row = KeyRow("alice:1", 1, "d1", T0)
        assert store.key("alice:1") is None
        store.append([event(1, claimed(store))], keys=[row])
        assert (store.key("alice:1"), store.key("alice:2"), store.key("")) == (row, None, None)

    def test_many_keys_are_looked_up_at_once(self, store: Store) -> None:
        made = {f"alice:{n} '\"%": KeyRow(f"alice:{n} '\"%", n, "d", T0) for n in range(1, 4)}
        store.append([event(1, claimed(store))], keys=list(made.values()))
        assert store.keys([*made, "alice:4", ""]) == made
        assert store.keys([]) == {}

    def test_a_key_that_is_used_again_means_the_newer_job(self, store: Store) -> None:
        epoch = claimed(store)
        store.append([event(1, epoch)], keys=[KeyRow("k", 1, "d1", T0)])
        store.append([event(2, epoch)], keys=[KeyRow("k", 2, "d2", T0 + DAY)])
        assert store.key("k") == KeyRow("k", 2, "d2", T0 + DAY)

    def test_keys_go_after_a_day(self, store: Store) -> None:
        rows = [KeyRow(f"k{n}", n, "d", T0 + n) for n in range(5)]
        store.append([event(1, claimed(store))], keys=rows)
        assert store.forget_keys(T0 + DAY + 2) == 3
        assert [store.key(row.key) for row in rows] == [None, None, None, *rows[3:]]
        assert store.forget_keys(T0 + DAY + 2) == 0

    def test_keys_go_a_few_at_a_time(self, store: Store) -> None:
        rows = [KeyRow(f"k{n}", n, "d", T0 + n) for n in range(5)]
        store.append([event(1, claimed(store))], keys=rows)
        assert [store.forget_keys(T0 + 2 * DAY, at_most=2) for _ in range(4)] == [2, 2, 1, 0]

    def test_a_refused_write_keeps_no_key(self, store: Store) -> None:
        with pytest.raises(ValueError, match="does not continue"):
            store.append([event(7, claimed(store))], keys=[KeyRow("k", 7, "d", T0)])
        assert store.key("k") is None

    # --- what was applied ---------------------------------------------------------------------------------------

    def test_what_was_applied_comes_back_newest_first(self, store: Store) -> None:
        store.append(batch(1, 3, claimed(store)), (), [applied(1), applied(3, commit="")])
        reader = store.reader()
        assert reader.applied() == [applied(3, commit="", body={}), applied(1, body={})]
        assert [reader.applied_at(seq) for seq in (1, 2, 3)] == [applied(1), None, applied(3, commit="")]
        reader.close()

    def test_what_was_applied_outlives_its_events(self, store: Store) -> None:
        ten_days(store)
        epoch, (seq, t_us) = claimed(store), store.last()
        store.append([event(seq + 1, epoch, t_us)], (), [applied(seq + 1)])
        store.save_snapshot(Snapshot(seq + 1, t_us, 1, {}))
        assert store.prune(1, T0 + 100 * DAY) > 0
        assert store.reader().applied_at(seq + 1) == applied(seq + 1)

    def test_the_last_hundred_are_kept(self, store: Store) -> None:
        epoch = claimed(store)
        for seq in range(1, 104):
            store.append([event(seq, epoch)], (), [applied(seq)])
        assert [row.seq for row in store.reader().applied()] == [*range(103, 3, -1)]

    def test_a_refused_write_applies_nothing(self, store: Store) -> None:
        epoch = claimed(store)
        with pytest.raises(ValueError, match="does not continue"):
            store.append([event(7, epoch)], (), [applied(7)])
        assert store.reader().applied() == []

    # --- backup -------------------------------------------------------------------------------------------------

    def test_a_backup_replaces_nothing(self, store: Store, tmp_path: Path) -> None:
        store.append(batch(1, 5, claimed(store)))
        target = tmp_path / "backup"
        store.backup(str(target))
        kept = target.read_bytes()
        with pytest.raises(Conflict, match="exists"):
            store.backup(str(target))
        assert target.read_bytes() == kept
