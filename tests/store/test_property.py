"""Whatever an owner does and however often it dies, the ledger is the list of what was acknowledged."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orchestrator.ledger.events import StoredEvent
from orchestrator.model.errors import Fenced
from orchestrator.store import sqlite
from orchestrator.store.backup import verify
from orchestrator.store.base import HistoryQuery, Snapshot
from orchestrator.store.open import open_store
from orchestrator.store.sqlite import SqliteStore
from tests.store.contract import DAY, T0, ended

bodies = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20) | st.none(), max_size=3)


class LedgerMachine(RuleBasedStateMachine):
    """The model: all acknowledged events, how many were pruned, snapshots, ended jobs, who owns it."""

    def __init__(self) -> None:
        super().__init__()
        self.state = Path(tempfile.mkdtemp())
        self.events: list[StoredEvent] = []
        self.pruned = 0
        self.snapshots: list[int] = []
        self.jobs: dict[int, str] = {}
        self.t_us = T0

    @initialize()
    def open(self) -> None:
        self.store = open_store(self.state)
        self.epoch = self.store.claim(1)
        self.deposed: SqliteStore | None = None

    def teardown(self) -> None:
        self.store.close()
        if self.deposed is not None:
            self.deposed.close()
        shutil.rmtree(self.state)

    @rule(
        contents=st.lists(st.tuples(bodies, st.sampled_from([0, 1, DAY // 3, DAY])), min_size=1, max_size=12)
    )
    def append(self, contents: list[tuple[dict[str, object], int]]) -> None:
        first = len(self.events) + 1
        batch = []
        for seq, (body, later) in enumerate(contents, start=first):
            self.t_us += later
            batch.append(StoredEvent(seq, self.t_us, self.epoch, "job.held", 1, "job/1", first, "é", body))
        job, state = first % 7, ("failed", "succeeded")[first % 2]
        self.store.append(batch, [ended(job, state=state)])
        self.events += batch
        self.jobs[job] = state

    @rule(wrong=st.sampled_from([-1, 1, 2]))
    def append_out_of_order(self, wrong: int) -> None:
        seq = len(self.events) + 1 + wrong
        with pytest.raises(ValueError, match="continue"):
            self.store.append(
                [StoredEvent(seq, self.t_us, self.epoch, "job.held", 1, "", seq, "", {})], [ended(99)]
            )

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = open_store(self.state)
        self.epoch = self.store.claim(1)

    @rule()
    def take_over(self) -> None:
        if self.deposed is not None:
            self.deposed.close()
        self.deposed, self.store = self.store, open_store(self.state)
        self.epoch = self.store.claim(1)

    @precondition(lambda self: self.deposed is not None)
    @rule()
    def the_deposed_writes(self) -> None:
        assert self.deposed is not None
        seq = len(self.events) + 1
        event = StoredEvent(seq, self.t_us, self.epoch - 1, "job.held", 1, "", seq, "", {})
        with pytest.raises(Fenced):
            self.deposed.append([event], [ended(99)])

    @precondition(lambda self: len(self.events) > self.pruned)
    @rule(data=st.data())
    def save_snapshot(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(max(self.pruned, 1), len(self.events)))
        self.store.save_snapshot(Snapshot(seq, self.t_us, 1, {"seq": seq}))
        self.snapshots = sorted({*self.snapshots, seq})[-sqlite.SNAPSHOTS_KEPT :]

    @rule(keep_days=st.integers(0, 3), at_most=st.sampled_from([0, 0, 3]))
    def prune(self, keep_days: int, at_most: int) -> None:
        gone = self.store.prune(keep_days, self.t_us, at_most=at_most)
        self.pruned += gone
        assert gone == 0 or self.pruned <= self.snapshots[0]
        assert all(
            event.t_us // DAY < self.t_us // DAY - keep_days
            for event in self.events[self.pruned - gone : self.pruned]
        )

    @invariant()
    def the_ledger_is_what_was_acknowledged(self) -> None:
        assert list(self.store.tail(self.pruned)) == self.events[self.pruned :]
        newest = self.events[-1] if self.events else None
        assert self.store.last() == ((newest.seq, newest.t_us) if newest else (0, 0))
        snapshot = self.store.load_snapshot()
        assert (snapshot.body["seq"] if snapshot else 0) == (self.snapshots[-1] if self.snapshots else 0)
        reader = self.store.reader()
        assert {row.job: row.state for row in reader.page(HistoryQuery())} == self.jobs
        reader.close()
        assert verify(self.state / "ledger.db").last == len(self.events)


TestLedger = pytest.mark.property(LedgerMachine.TestCase)
TestLedger.settings = settings(max_examples=25, stateful_step_count=25)
