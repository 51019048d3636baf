"""Attempts, journal and status files as one machine, without processes: any order of answers, deaths and restarts.

The workers are played here with the real claim and the real records, so that what is proved is what the shepherd
relies on: an id is started by one worker at most, and its end is reported exactly once.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from orchestrator.agent import layout, procfs, status
from orchestrator.agent.attempts import Attempts, Wish
from orchestrator.agent.board import Board
from orchestrator.agent.history import History
from orchestrator.agent.journal import Journal
from orchestrator.agent.lease import Lease
from orchestrator.agent.loop import Loop
from orchestrator.agent.plan import NodeContext
from orchestrator.agent.records import Memory
from orchestrator.agent.sync import Sent
from orchestrator.agent.unit import Unit
from orchestrator.agent.worker import boot_id
from orchestrator.model.clock import ManualClock
from orchestrator.model.codec import encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, Owner, Request
from orchestrator.model.protocol import Desired, EndOrder, GangPart, Launch, Phase

LAUNCH = Launch(JobSpec("m", Request(tasks=1), ("true",)), Owner("u", 1, 1), (GangPart("n", "a", 0, 1),), 0)
ATTEMPTS = [AttemptId(1, 1), AttemptId(2, 1), AttemptId(2, 2)]


@dataclass
class PlayedWorker:
    """A request to the nursery, and how far the worker is."""

    do: str
    directory: str
    started: Callable[[int, int], None]
    writer: status.StatusWriter | None = None
    done: bool = False


@dataclass
class PlayedStarter:
    """Collects requests; the machine decides what becomes of them."""

    asked: list[PlayedWorker] = field(default_factory=list)

    def ask(self, do: str, directory: str, started: Callable[[int, int], None], **_: Any) -> int:
        if do == "purge":
            shutil.rmtree(directory, ignore_errors=True)
        elif do == "kill":
            started(0, 1)  # a worker of no nursery that could have given it more work
        else:
            self.asked.append(PlayedWorker(do, directory, started))
        return len(self.asked)


class Machine(RuleBasedStateMachine):
    workers = Bundle("workers")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="gangline-machine-")
        os.mkdir(os.path.join(self.folder, "attempts"))
        self.clock = ManualClock()
        self.heard: list[dict[str, Any]] = []  # every event that ever got a number, by the controller
        self.runs: dict[str, int] = {}
        self.living: list[PlayedWorker] = []
        self.harmed: set[str] = set()  # folders whose workers did not all do what they were asked for
        self.unheard: list[PlayedWorker] = []  # made, and the nursery's answer is on its way
        self.starter = PlayedStarter()
        # Every played worker has this process's number: a real signal would hit the test itself.
        self.no_signals = mock.patch.object(Unit, "signal", return_value=None)
        self.no_signals.start()
        self._boot()

    def teardown(self) -> None:
        self.no_signals.stop()
        self.journal.close()
        shutil.rmtree(self.folder)

    def _boot(self) -> None:
        """A new agent process on the same folder."""
        self.unheard = []
        self.held: dict[str, PlayedWorker] = {}  # the last worker that the agent was told of, by folder
        self.journal = Journal(self.folder, History(self.folder, 10**6, 100, self.clock))
        self.loop = Loop(self.clock)
        self.starter = PlayedStarter()
        context = NodeContext("n", "n.x", self.folder, "", "process-tree", run_as_self=True)
        board = Board(self.journal, self.starter, self.loop, context, lambda: None)  # type: ignore[arg-type]
        self.attempts = Attempts(board, Lease(self.folder, self.clock))
        self.attempts.adopt()

    # --- the controller --------------------------------------------------------------------------------------------

    @rule(attempt=st.sampled_from(ATTEMPTS), phase=st.sampled_from([Phase.PREPARE, Phase.RUN, Phase.END]))
    def answer(self, attempt: AttemptId, phase: Phase) -> None:
        """Any wish at any time: what was lost is not in the sequence, what came twice or late is."""
        self._answer(Desired(attempt, phase, end=EndOrder("why") if phase is Phase.END else None))

    def _answer(self, desired: Desired) -> None:
        sent = Sent(
            0, -1, self.clock.monotonic_us()
        )  # asked before anything was acknowledged: nothing is forgotten
        self.attempts.want({desired.attempt: Wish(desired, encode(LAUNCH))}, sent)

    @rule()
    def acknowledge(self) -> None:
        self._collect()
        self.journal.acked(self.journal.memory.next_n - 1)

    def _collect(self) -> None:
        """What a sync would have brought to the controller."""
        known = {event["n"] for event in self.heard}
        self.heard += [event for n, event in self.journal.memory.events.items() if n not in known]

    # --- the workers -----------------------------------------------------------------------------------------------

    @rule(target=workers)
    def worker_made(self) -> PlayedWorker | None:
        """It lives; that the agent hears of it comes earlier or later than what it writes."""
        if not self.starter.asked:
            return None
        worker = self.starter.asked.pop(0)
        self.living.append(worker)
        self.unheard.append(worker)
        return worker

    @rule()
    def nursery_answers(self) -> None:
        if self.unheard:
            worker = self.unheard.pop(0)
            self.held[worker.directory] = worker
            worker.started(os.getpid(), procfs.start_of(os.getpid()))

    @rule(worker=workers)
    def worker_works(self, worker: PlayedWorker | None) -> None:
        """One step: the claim and the first records."""
        if worker is None or worker.done or worker.writer is not None:
            return
        if worker.do == "prepare":
            if os.path.isdir(worker.directory):
                with open(os.path.join(worker.directory, layout.PREPARE), "w") as file:
                    file.write(json.dumps({"k": "prepared", "t": 1}) + "\n")
            return
        if not os.path.exists(os.path.join(worker.directory, layout.PLAN)):
            return
        path = os.path.join(worker.directory, layout.STATUS)
        first = {"k": "worker", "do": worker.do, "pid": 0, "start": 0, "boot": boot_id(), "t": 1}
        worker.writer = status.claim(path, first, "", "u")
        if worker.do == "run" and worker.writer is not None:
            self.runs[worker.directory] = self.runs.get(worker.directory, 0) + 1
            worker.writer.add({"k": "ranks", "ranks": [0], "pids": [1], "t": 1})
        elif worker.do == "mop" and worker.writer is None:
            worker.writer = status.reopen(path, "", "u")

    @rule(worker=consumes(workers), clean=st.booleans())
    def worker_ends(self, worker: PlayedWorker | None, clean: bool) -> None:
        """By itself with its last record, or killed without one."""
        if worker is None or worker.done:
            return
        worker.done = True
        if not clean or not self._did_its_work(worker):
            self.harmed.add(worker.directory)
        if worker.writer is not None:
            kinds = [
                record["k"]
                for _, record in status.read_records(os.path.join(worker.directory, layout.STATUS))[0]
            ]
            if clean and "ended" not in kinds:
                if worker.do == "mop" and "ranks" in kinds:
                    worker.writer.add({"k": "lost", "error": "killed", "t": 1})
                worker.writer.add({"k": "ended", "t": 1})
            worker.writer.close()
        self._tell_death(worker)

    def _did_its_work(self, worker: PlayedWorker) -> bool:
        if worker.do == "prepare":
            return os.path.exists(os.path.join(worker.directory, layout.PREPARE))
        return worker.writer is not None

    def _tell_death(self, worker: PlayedWorker) -> None:
        self.living.remove(worker)
        if worker in self.unheard:  # then the answer names a process that is gone
            self.unheard.remove(worker)
            worker.started(2**30, 1)
        unit = next(
            (each for each in self.attempts.units.values() if each.directory == worker.directory), None
        )
        if unit is not None and unit.pidfd >= 0 and self.held.get(worker.directory) is worker:
            self.attempts.keepers.gone(unit)

    @rule()
    def look(self) -> None:
        self.clock.advance(2)
        self.loop._fire()
        self.attempts.reports.look_at_all()

    @rule()
    def kill_agent(self) -> None:
        """Workers go on by themselves; what the nursery had not answered is lost with it."""
        self._collect()
        for unit in self.attempts.units.values():
            unit.detach()
        self.journal.close()
        self._boot()

    # --- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def nothing_starts_twice(self) -> None:
        assert all(count <= 1 for count in self.runs.values())

    @invariant()
    def every_end_is_reported_once(self) -> None:
        self._collect()
        for attempt in ATTEMPTS:
            ends = [
                event
                for event in self.heard
                if event["kind"] == "ended" and tuple(event["attempt"]) == attempt
            ]
            assert len(ends) <= 1
            starts = [
                event
                for event in self.heard
                if event["kind"] == "started" and tuple(event["attempt"]) == attempt
            ]
            assert len(starts) <= 1

    @invariant()
    def no_node_is_blamed_without_a_reason(self) -> None:
        self._collect()
        for event in self.heard:
            directory = layout.attempt_dir(self.folder, AttemptId(*event["attempt"]))
            assert "cause" not in event or directory in self.harmed, event

    @invariant()
    def numbers_are_gapless(self) -> None:
        self._collect()
        assert [event["n"] for event in self.heard] == list(range(1, len(self.heard) + 1))

    @invariant()
    def memory_is_the_fold_of_the_file(self) -> None:
        folded = Memory(self.journal.memory.ids)
        with open(os.path.join(self.folder, "journal.jsonl"), "rb") as file:
            for line in file:
                folded.fold(json.loads(line[9:]))
        assert folded.next_n == self.journal.memory.next_n
        assert folded.records.keys() == self.journal.memory.records.keys()

    def drain(self) -> None:
        """The controller wants every attempt ended, and keeps wanting it; workers do their work."""
        for _ in range(12):
            for attempt in ATTEMPTS:
                self._answer(Desired(attempt, Phase.END, end=EndOrder("over", grace_s=0)))
            while self.starter.asked:
                worker = self.worker_made()
                self.nursery_answers()
                self.worker_works(worker)
                self.worker_ends(worker, True)
            while self.unheard:
                self.nursery_answers()
            for worker in list(self.living):
                self.worker_works(worker)
                self.worker_ends(worker, True)
            self.look()
        self._collect()


class DrainingMachine(Machine):
    """Ends each run by wanting everything ended: then each attempt has exactly one end."""

    def teardown(self) -> None:
        self.drain()
        try:
            for attempt in ATTEMPTS:
                ends = [
                    event
                    for event in self.heard
                    if event["kind"] == "ended" and tuple(event["attempt"]) == attempt
                ]
                assert len(ends) == 1, (
                    attempt,
                    self.heard,
                    {a: u.local for a, u in self.attempts.units.items()},
                )
            assert not self.attempts.held()
        finally:
            super().teardown()


TestMachine = DrainingMachine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40)
TestMachine.pytestmark = [pytest.mark.property]  # type: ignore[attr-defined]
