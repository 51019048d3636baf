"""All attempts on this node: from wishes to deeds, from workers' records to events in the outbox.

Comes in: the controller's wishes, notices, deaths of workers. Goes out: journal entries, then requests to the
nursery and signals. Called by: the daemon. The order is always the same: journal first, deed second.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.agent import log, outcome, plan, records, worker
from orchestrator.agent.journal import Journal, JournalError
from orchestrator.agent.loop import READ, Loop
from orchestrator.agent.plan import NodeContext
from orchestrator.agent.reconcile import Local, Step, next_step
from orchestrator.agent.records import Entry, Record
from orchestrator.agent.shepherd import ORDER_SIGNAL
from orchestrator.agent.starter import Starter
from orchestrator.agent.sync import Sent
from orchestrator.agent.unit import Unit
from orchestrator.model.codec import CodecError, decode
from orchestrator.model.failpoints import failpoint
from orchestrator.model.ids import AttemptId, parse_unit
from orchestrator.model.job import OnLost
from orchestrator.model.protocol import Desired, EndOrder, EventKind, Launch, Phase

Plain = dict[str, Any]

GATHER_S = 0.005  # a start waits so long for its end, so that short ranks cost one report and not two
MOST_TRIES = 3  # workers for one attempt that die before they take it
RETRY_S = 1.0  # between attempts while the disk is full or a worker could not be made
_HELD = (Local.INTENT, Local.PREPARING, Local.PREPARED, Local.RUNNING, Local.ENDING)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the controller wants of an attempt, with the launch as it was sent."""

    desired: Desired
    launch: Plain | None


@dataclass(slots=True)
class _Todo:
    """A step that was decided, with what it needs."""

    step: Step
    unit: Unit
    desired: Desired


class Attempts:
    """See the module. `changed` is called when there is something to report, `write_lease` before a unit starts that
    ends with the lease."""

    def __init__(
        self,
        journal: Journal,
        starter: Starter,
        loop: Loop,
        context: NodeContext,
        changed: Callable[[], None],
        write_lease: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._memory = journal.memory
        self._starter = starter
        self._loop = loop
        self._clock = loop.clock
        self._context = context
        self._changed = changed
        self._write_lease = write_lease
        self._trouble = log.Repeated()
        self._boot = worker.boot_id()
        self.units: dict[AttemptId, Unit] = {}
        self._wishes: dict[AttemptId, Wish] = {}
        self._dirty: set[AttemptId] = set()

    def held(self) -> list[AttemptId]:
        """Attempts that may have something on the node."""
        return [attempt for attempt, unit in self.units.items() if unit.local in _HELD]

    def any_fence(self) -> bool:
        """Whether a live attempt ends by itself when contact is lost."""
        return any(unit.fence for unit in self.units.values())

    # --- wishes ----------------------------------------------------------------------------------------------------

    def want(self, wishes: dict[AttemptId, Wish], sent: Sent) -> bool:
        """Take an answer's wishes; whether any of them led to a step."""
        self._wishes = wishes
        return self._reconcile(list(wishes), sent)

    def _again(self) -> None:
        self._reconcile(list(self._wishes), None)

    def _reconcile(self, attempts: Iterable[AttemptId], sent: Sent | None) -> bool:
        todo: list[_Todo] = []
        entries: list[Entry] = []
        for attempt in attempts:
            wish = self._wishes.get(attempt)
            if wish is not None:
                self._decide(wish, sent, todo, entries)
        if not todo:
            return False
        if entries and not self._commit(entries):
            self._loop.after("retry", RETRY_S, self._again)
            return False
        if any(each.step in (Step.PREPARE, Step.RUN) for each in todo):
            failpoint("agent.intent.after")
        for each in todo:
            self._do(each)
        return True

    def _decide(self, wish: Wish, sent: Sent | None, todo: list[_Todo], entries: list[Entry]) -> None:
        attempt = wish.desired.attempt
        record = self._memory.records.get(attempt)
        unit = self.units.get(attempt)
        desired = wish.desired
        if unit is not None and unit.order is not None:  # once it is to end, nothing else can be wanted of it
            end = desired.end if desired.phase is Phase.END and desired.end is not None else unit.order
            desired = Desired(attempt, Phase.END, end=end)
        launch = wish.launch or (record.launch if record is not None else None)
        step = next_step(
            unit.local if unit is not None else self._local_without_unit(attempt, record),
            desired,
            has_launch=launch is not None,
            forgotten=self._forgotten(record, sent),
        )
        if step is Step.WAIT:
            return
        if step in (Step.CLOSE, Step.REPEAT):
            entries.append(records.event(self._last_event(attempt, step), 0))
            self._changed()
        unit = unit or Unit(attempt, self._context.state_dir)
        if step in (Step.PREPARE, Step.RUN) and not self._intend(unit, record, launch, step, entries):
            return
        todo.append(_Todo(step, unit, desired))

    def _local_without_unit(self, attempt: AttemptId, record: Record | None) -> Local:
        if attempt not in self._memory.ids:
            return Local.UNKNOWN
        return Local.REFUSED if record is not None and record.refused else Local.FINISHED

    def _forgotten(self, record: Record | None, sent: Sent | None) -> bool:
        """Whether the controller had acknowledged the last event before it was asked, and asks all the same."""
        if sent is None:
            return False
        if record is None:  # moved to the history, which needs the acknowledgement
            return sent.rewrites == self._journal.rewrites
        return record.final is not None and record.final_n <= sent.acked

    def _last_event(self, attempt: AttemptId, step: Step) -> Plain:
        now = self._clock.now_us()
        if step is Step.CLOSE:
            return outcome.never_started(attempt, now)
        known = self._journal.final_event(attempt)
        if known is not None:
            return {key: value for key, value in known.items() if key != "n"} | {"n": 0}
        return outcome.never_started(attempt, now) | {
            "started": True, "cause": "node_failed", "error": "it ended here so long ago that no record is kept",
        }  # fmt: skip

    def _intend(
        self, unit: Unit, record: Record | None, launch: Plain | None, step: Step, entries: list[Entry]
    ) -> bool:
        """Write the plan and the intent; False if that is not possible now."""
        failpoint("agent.prepare.before")
        try:
            decoded = decode(Launch, launch)
        except CodecError as error:
            refusal = outcome.prepare_failed(
                unit.attempt, self._clock.now_us(), "bad-launch", f"the launch can't be read: {error}"
            )
            entries.append(records.event(refusal, 0))
            self._loop.after("bad-launch", 0, self._changed)
            self._commit_alone(entries)
            return False
        unit.fence = decoded.job.on_lost is OnLost.SELF_FENCE
        try:
            unit.write_plan(plan.build(unit.attempt, decoded, self._context))
        except OSError as error:
            self._trouble.error(
                f"{error.filename or unit.directory}: {error.strerror}; {unit.attempt} is not started yet"
            )
            self._loop.after("retry", RETRY_S, self._again)
            return False
        if record is None or (step is Step.RUN and not record.run):
            entries.append(records.intent(unit.attempt, launch or {}, self._boot, run=step is Step.RUN))
        return True

    def _commit_alone(self, entries: list[Entry]) -> None:
        """An entry with no deed after it."""
        if not self._commit([entries.pop()]):
            self._loop.after("retry", RETRY_S, self._again)

    def _commit(self, entries: list[Entry]) -> bool:
        try:
            self._journal.commit(entries)
        except JournalError as error:
            self._trouble.error(f"{error}; nothing is started or reported until it can be written")
            return False
        self._trouble.over("the journal can be written again")
        return True

    # --- deeds -----------------------------------------------------------------------------------------------------

    def _do(self, todo: _Todo) -> None:
        unit, step = todo.unit, todo.step
        if step in (Step.CLOSE, Step.REPEAT):
            return
        self.units[unit.attempt] = unit
        if step is Step.PREPARE:
            unit.local = Local.PREPARING
            self._ask(unit, "prepare")
        elif step is Step.RUN:
            unit.local = Local.RUNNING
            if unit.fence:
                self._write_lease()
            self._ask(unit, "run")
        elif step is Step.STOP_PREPARING:
            unit.order = todo.desired.end or EndOrder("")
            unit.signal(signal.SIGKILL)
        elif step is Step.ORDER:
            self._order(unit, todo.desired.end or EndOrder(""))
        else:
            if step is Step.SEARCH:
                unit.assume(started=todo.desired.started)
            self._mop(unit)

    def _order(self, unit: Unit, order: EndOrder) -> None:
        if order == unit.order and unit.local is Local.ENDING:
            return
        unit.local = Local.ENDING
        try:
            unit.write_order(order)
        except OSError as error:
            unit.order = None
            self._trouble.error(f"{unit.directory}: {error.strerror}; {unit.attempt} is not told to end yet")
            self._loop.after("retry", RETRY_S, self._again)
            return
        if unit.pidfd >= 0:
            unit.signal(ORDER_SIGNAL)
            failpoint("agent.end.after-signal")
        elif not unit.doing:
            self._mop(unit)  # an orphan: no shepherd reads its order

    def _mop(self, unit: Unit) -> None:
        """Make sure that nothing of it is left and that it never starts."""
        unit.local = Local.ENDING
        try:
            if not unit.has_plan():
                unit.write_plan(plan.bare(unit.attempt, self._context))
        except OSError as error:
            self._trouble.error(f"{unit.directory}: {error.strerror}; {unit.attempt} is not cleaned up yet")
            self._loop.after(f"mop-{unit.attempt}", RETRY_S, lambda: self._mop(unit))
            return
        self._ask(unit, "mop")

    def _ask(self, unit: Unit, do: str) -> None:
        unit.doing = do
        self._starter.ask(do, unit.directory, lambda pid, start: self._worker_made(unit, do, pid, start))

    # --- workers ---------------------------------------------------------------------------------------------------

    def _worker_made(self, unit: Unit, do: str, pid: int, start: int) -> None:
        if self.units.get(unit.attempt) is not unit:
            return  # it is over already
        if (
            not pid
        ):  # the nursery is gone, its answer with it; asking again is safe, for one worker alone can claim
            self._ask(unit, do)
        elif unit.attach(pid, start):
            self._hold(unit)
        else:
            self._worker_gone(unit)

    def _hold(self, unit: Unit) -> None:
        self._loop.watch(unit.pidfd, READ, lambda _: self._worker_gone(unit))
        if unit.order is not None:
            unit.signal(
                ORDER_SIGNAL if unit.doing == "run" else signal.SIGKILL if unit.doing == "prepare" else 0
            )

    def _worker_gone(self, unit: Unit) -> None:
        if unit.pidfd >= 0:
            self._loop.forget(unit.pidfd)
            unit.detach()
        did, unit.doing = unit.doing, ""
        if did == "prepare":
            self._preparer_gone(unit)
            return
        self._dirty.add(unit.attempt)
        self.flush()
        if unit.outcome.over or unit.doing:
            return
        if unit.attach_recorded():  # another worker had claimed it before ours
            unit.doing = unit.outcome.worker["do"] if unit.outcome.worker else ""
            self._hold(unit)
        elif did == "run" and not unit.claimed() and unit.tries < MOST_TRIES:
            unit.tries += 1  # the worker died before it took the attempt: it never started
            self._ask(unit, "run")
        elif did == "mop":
            log.error(
                f"{unit.attempt}: the cleaning worker died: {worker.read_crash(unit.directory) or 'killed'}; again"
            )
            self._loop.after(f"mop-{unit.attempt}", RETRY_S, lambda: self._mop(unit))
        else:
            self._mop(unit)

    def _preparer_gone(self, unit: Unit) -> None:
        result = unit.preparation()
        now = self._clock.now_us()
        if unit.order is not None:
            unit.local = Local.INTENT
            self._mop(unit)
            return
        if result is not None and result["k"] == "prepared":
            event = outcome.prepared(unit.attempt, now)
        elif result is not None:
            event = outcome.prepare_failed(unit.attempt, now, result["code"], result["error"])
        else:
            why = worker.read_crash(unit.directory) or "the preparing worker was killed"
            event = outcome.prepare_failed(unit.attempt, now, "worker-died", why)
        self._report_preparation(unit, event)

    def _report_preparation(self, unit: Unit, event: Plain) -> None:
        if not self._report([records.event(event, 0)]):
            self._loop.after(
                f"prepared-{unit.attempt}", RETRY_S, lambda: self._report_preparation(unit, event)
            )
            return
        if event["kind"] == EventKind.PREPARED.value:
            unit.local = Local.PREPARED
        else:
            self._close(unit)
        self._reconcile([unit.attempt], None)

    # --- reports ---------------------------------------------------------------------------------------------------

    def noticed(self, name: str, *, hurry: bool) -> None:
        """A worker says that its unit has a new record."""
        try:
            attempt = parse_unit(name)
        except ValueError:
            return
        self._dirty.add(attempt)
        if hurry:
            self.flush()
        elif not self._loop.pending("gather"):
            self._loop.after("gather", GATHER_S, self.flush)

    def look_at_all(self) -> None:
        """Read what notices may have failed to tell."""
        self._dirty.update(attempt for attempt, unit in self.units.items() if unit.doing or unit.pidfd >= 0)
        self.flush()

    def flush(self) -> None:
        """Read the records of what is dirty, write their events into the outbox, and act on what ended."""
        self._loop.cancel("gather")
        looked = [self.units[attempt] for attempt in self._dirty if attempt in self.units]
        self._dirty.clear()
        entries = [entry for unit in looked for entry in self._events_of(unit)]
        if entries and not self._report(entries):
            for unit in looked:
                unit.reread()
                self._dirty.add(unit.attempt)
            self._loop.after("retry-flush", RETRY_S, self.flush)
            return
        for unit in looked:
            if unit.outcome.over:
                self._close(unit)
                self._reconcile([unit.attempt], None)

    def _events_of(self, unit: Unit) -> list[Entry]:
        record = self._memory.records.get(unit.attempt)
        news = unit.news(record.offset if record is not None else 0)
        if any(event["kind"] == EventKind.STARTED.value for event, _ in news):
            failpoint("agent.unit.after")
        return [records.event(event, offset) for event, offset in news]

    def _report(self, entries: list[Entry]) -> bool:
        failpoint("agent.event.before-outbox")
        if not self._commit(entries):
            return False
        failpoint("agent.event.after-outbox")
        self._changed()
        return True

    def _close(self, unit: Unit) -> None:
        """It has ended here. Its folder stays for its logs, unless nothing ever ran."""
        if unit.pidfd >= 0:
            self._loop.forget(unit.pidfd)
            unit.detach()
        self.units.pop(unit.attempt, None)
        if not unit.outcome.started:
            self._starter.ask("purge", unit.directory, lambda _pid, _start: None)

    # --- the start of the agent ------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Take up every attempt that the journal holds."""
        for attempt, record in list(self._memory.records.items()):
            if record.final is None:
                self._adopt(Unit(attempt, self._context.state_dir), record)
        self.flush()

    def _adopt(self, unit: Unit, record: Record) -> None:
        self.units[unit.attempt] = unit
        unit.read_order()
        unit.fence = (
            bool(record.launch)
            and (record.launch or {}).get("job", {}).get("on_lost") == OnLost.SELF_FENCE.value
        )
        if unit.claimed():
            unit.local = Local.RUNNING if unit.order is None else Local.ENDING
            unit.news(after=1 << 62)  # fold all; what is new is read again below
            alive = unit.attach_recorded()
            over = unit.outcome.over
            doing = unit.outcome.worker["do"] if unit.outcome.worker else ""
            unit.reread()
            self._dirty.add(unit.attempt)
            if alive:
                unit.doing = doing
                self._hold(unit)
            elif not over:
                self._mop(unit)
        elif record.boot != self._boot:
            unit.assume(loss="the node was restarted")
            self._mop(unit)
        elif record.run and not unit.has_plan():
            unit.assume(started=True)
            self._mop(unit)
        else:
            unit.local = Local.PREPARED if record.prepared else Local.INTENT

    def adopt_orphan(self, attempt: AttemptId) -> None:
        """A unit that is on the node and in no record: held, and not touched until the controller wants its end."""
        if attempt in self.units or attempt in self._memory.ids:
            return
        log.error(f"{attempt} is on this node and in no record: it is held as an orphan")
        unit = Unit(attempt, self._context.state_dir, Local.RUNNING)
        unit.assume(started=True)
        self.units[attempt] = unit

    def orphans(self) -> list[Unit]:
        """Units without records that nothing is done about."""
        return [
            unit
            for unit in self.units.values()
            if unit.local is Local.RUNNING and not unit.doing and unit.pidfd < 0
        ]

    def orphan_gone(self, unit: Unit) -> None:
        """Its processes ended by themselves: prove it and report it."""
        self._mop(unit)
