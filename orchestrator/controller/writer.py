"""Events in, durable: the only maker of events, and the keeper of the State they fold into.

Comes in: bodies of facts and decisions. Goes out: a State that is ahead of the disk by what is pending, and after
`commit` by nothing. Called by: intake, sync, timers, enact (record), loop (commit).

Facts are folded when they are recorded, so that each command of a batch sees those before it; nobody is answered and
nothing is published before the commit. If the commit fails, State is read again from the store, as after a crash.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from orchestrator.controller.applied import TYPE as APPLIED
from orchestrator.controller.applied import applied_row
from orchestrator.controller.view import JobView, from_history, history_row
from orchestrator.ledger import events
from orchestrator.ledger.apply import apply
from orchestrator.ledger.ends import CALM
from orchestrator.ledger.events import Event, from_stored, job_subject, node_subject, to_stored
from orchestrator.ledger.events_capacity import intent_subject
from orchestrator.ledger.records import Job
from orchestrator.ledger.snapshot import VERSION, from_plain
from orchestrator.ledger.state import State
from orchestrator.model.attempt import JobState
from orchestrator.model.clock import SECOND, Clock
from orchestrator.model.dependency import Outcome, outcome
from orchestrator.model.errors import GanglineError, Unavailable
from orchestrator.store.base import KEYS_KEPT_US, HistoryRow, KeyRow, Store

BY_CONTROLLER = "controller"
BY_SCHEDULER = "scheduler"

SURE_FOR_US = 2 * SECOND  # after a write: how long the ledger is taken to be still this controller's


class Writer:
    """Owns State. `touched_*` is what changed since the loop last published; `stirred`: a pass may decide anew."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pending: list[Event] = []
        self._ended: list[HistoryRow] = []
        self._keys: dict[str, KeyRow] = {}
        self._looked_up: dict[str, KeyRow | None] = {}
        self._restore_noted = False
        self.touched_jobs: dict[int, Job | None] = {}
        self.touched_nodes: dict[str, bool] = {}
        self.touched_tokens = self.touched_applies = self.touched_capacity = True
        self.everything_touched = True
        self.stirred = True
        self.epoch = store.claim(clock.now_us() // 1_000_000)
        self.since_snapshot = 0
        self.state = self._load()
        self._sure_us = clock.monotonic_us()

    def _load(self) -> State:
        """The newest snapshot and the events after it. They count towards the next one: a controller that is killed
        again and again must not find ever more of them. GanglineError if they can't be read."""
        try:
            snapshot = self._store.load_snapshot()
            if snapshot is not None and snapshot.version > VERSION:
                raise ValueError(f"snapshot version {snapshot.version} was written by a newer Gangline")
            state = from_plain(snapshot.body) if snapshot is not None else State()
            begun = state.seq
            for stored in self._store.tail(begun):
                apply(state, from_stored(stored))
        except GanglineError:
            raise
        except (ValueError, KeyError) as error:
            raise GanglineError(
                "ledger.unreadable",
                f"the ledger can't be read: {error}",
                "run the Gangline that wrote it, or put a backup back with `gangline server restore`",
            ) from error
        self.since_snapshot = state.seq - begun
        return state

    @property
    def touched(self) -> bool:
        """Whether there is anything to publish."""
        small = self.touched_tokens or self.touched_applies or self.touched_capacity
        return bool(self.touched_jobs or self.touched_nodes or small or self.everything_touched)

    def published(self) -> None:
        """Everything that has changed is published."""
        self.touched_jobs, self.touched_nodes = {}, {}
        self.touched_tokens = self.touched_applies = self.everything_touched = False
        self.touched_capacity = False

    # --- recording ------------------------------------------------------------------------------------------

    def record(self, body: Any, subject: str, by: str = BY_CONTROLLER) -> Event:
        """Make the next event of this body and fold it; durable after `commit`."""
        state = self.state
        batch = self._pending[0].seq if self._pending else state.seq + 1
        t_us = max(self._clock.now_us(), state.t_us)
        event = Event(state.seq + 1, t_us, self.epoch, batch, subject, by, body)
        apply(state, event)
        self._pending.append(event)
        self.stirred = self.stirred or bool(state.moved) or not isinstance(body, CALM)
        if state.moved:
            self.touched_jobs.update((job, state.jobs.get(job)) for job in state.moved)
            state.moved.clear()
        return event

    def job(self, job_id: int, body: Any, by: str = BY_CONTROLLER) -> Event:
        """Record a fact of a job or its attempt; if that ends the job, its record goes to the history."""
        before = self.state.jobs.get(job_id)
        event = self.record(body, job_subject(job_id), by)
        now = self.state.jobs.get(job_id)
        self.touched_jobs[job_id] = now
        if now is None and before is not None:
            self.ended_job(before)
        return event

    def submitted(self, body: events.JobSubmitted, by: str) -> None:
        """Record a submit, and keep its key with the events of its batch."""
        event = self.job(body.job, body, by)
        if body.key:
            self._keys[body.key] = KeyRow(body.key, body.job, body.digest, event.t_us)

    def array(self, array_id: int, body: Any, by: str) -> Event:
        """Record a fact of an array: all of its tasks look different."""
        event = self.record(body, job_subject(array_id), by)
        self.touched_jobs.update((job.id, job) for job in self.state.jobs.values() if job.array == array_id)
        return event

    def look_up(self, keys: list[str]) -> None:
        """Ask the store for all Idempotency-Keys of a batch at once, which costs no more than for one. What it can't
        tell, `made_by` asks again."""
        self._looked_up = {}
        if len(keys) > 1:
            with suppress(GanglineError):
                self._looked_up = {**dict.fromkeys(keys), **self._store.keys(keys)}

    def made_by(self, key: str) -> KeyRow | None:
        """What an Idempotency-Key has made within the last day, or None."""
        found = self._keys.get(key)
        if found is None:
            found = self._looked_up[key] if key in self._looked_up else self._store.key(key)
        good = found is not None and found.t_us > self._clock.now_us() - KEYS_KEPT_US
        return found if good else None

    def token(self, token_id: str, body: Any, by: str) -> Event:
        """Record a fact of a token."""
        self.touched_tokens = True
        return self.record(body, f"token/{token_id}", by)

    def node(self, name: str, body: Any, by: str = BY_CONTROLLER) -> Event:
        """Record a fact of a node."""
        self.touched_nodes[name] = True
        return self.record(body, node_subject(name), by)

    def capacity(self, intent: str, body: Any, by: str = BY_CONTROLLER) -> Event:
        """Record a fact of a launch."""
        self.touched_capacity = True
        return self.record(body, intent_subject(intent), by)

    def ended_job(self, job: Job) -> None:
        """Keep an ended job's record with the events of its batch."""
        self._ended.append(history_row(self.state, job))

    def is_over(self, job_id: int) -> bool:
        """Whether the history has that job."""
        return self.past(job_id) is not None

    def past(self, job_id: int) -> JobView | None:
        """An ended job as the history has it, or as it will with the next commit; None if there is none."""
        for row in reversed(self._ended):
            if row.job == job_id:
                return from_history(row)
        reader = self._store.reader()
        try:
            row_or_none = reader.job(job_id)
        finally:
            reader.close()
        return from_history(row_or_none) if row_or_none is not None else None

    def outcomes(self, first: int, last: int) -> list[Outcome]:
        """How the ended jobs with ids from `first` to `last` count, those of the next commit among them."""
        reader = self._store.reader()
        try:
            found = {job: (state, code) for job, state, code in reader.outcomes(first, last)}
        finally:
            reader.close()
        found.update((row.job, (row.state, row.exit_code)) for row in self._ended if first <= row.job <= last)
        return [outcome(JobState(state), code) for state, code in found.values()]

    def note_restore(self) -> None:
        """The restore is in the pending events: the store may forget that it was one."""
        self._restore_noted = True

    # --- durability -----------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether something waits for a commit."""
        return bool(self._pending)

    def commit(self) -> None:
        """Make everything pending durable in one transaction. On any error State is as the store has it."""
        if not self._pending:
            return
        stored = [to_stored(event) for event in self._pending]
        applied = [applied_row(one) for one in stored if one.type == APPLIED]
        ended, keys, noted = self._ended, list(self._keys.values()), self._restore_noted
        self._drop_pending()
        try:
            self._store.append(stored, ended, applied, keys, restore_noted=noted)
        except Unavailable:
            self.reload()
            raise
        self.since_snapshot += len(stored)
        self._sure_us = self._clock.monotonic_us()

    def stay_sure(self) -> None:
        """Fenced if a newer controller has taken the ledger. A write tells by itself; one that has nothing to write
        for a while has to ask, since agents wait at it for news that the newer one has."""
        if self._clock.monotonic_us() - self._sure_us >= SURE_FOR_US:
            self.make_sure()

    def make_sure(self) -> None:
        """Ask the ledger whose it is; Fenced if it is not this controller's any more."""
        self._store.append(())
        self._sure_us = self._clock.monotonic_us()

    def reload(self) -> None:
        """Forget what is pending and read State anew."""
        self._drop_pending()
        self.state = self._load()
        self.everything_touched = self.stirred = True

    def _drop_pending(self) -> None:
        self._pending, self._ended, self._keys, self._restore_noted = [], [], {}, False
        self._looked_up = {}
