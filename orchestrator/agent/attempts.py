"""All attempts on this node: from wishes to deeds.

Comes in: the controller's wishes. Goes out: journal entries, then requests for workers and orders to them. Called by:
the daemon. The order is always the same: journal first, deed second. What workers write becomes events in `reports`;
how they live and die is in `keepers`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.agent import log, outcome, plan, records, worker
from orchestrator.agent.board import Board
from orchestrator.agent.keepers import Keepers
from orchestrator.agent.lease import Lease
from orchestrator.agent.reconcile import Local, Step, next_step
from orchestrator.agent.records import Entry, Record
from orchestrator.agent.reports import Reports
from orchestrator.agent.shepherd import ORDER_SIGNAL
from orchestrator.agent.sync import Sent
from orchestrator.agent.unit import Unit
from orchestrator.model.codec import CodecError, decode
from orchestrator.model.failpoints import failpoint
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import OnLost
from orchestrator.model.protocol import Desired, EndOrder, EventKind, Launch, Phase

Plain = dict[str, Any]

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
    """See the module. The lease is written before a unit starts that ends with it."""

    def __init__(self, board: Board, lease: Lease) -> None:
        self._board = board
        self._memory = board.journal.memory
        self._lease = lease
        self._boot = worker.boot_id()
        self.units = board.units
        self.reports = Reports(board, self._over)
        self.keepers = Keepers(board, self.reports, self._preparer_gone)
        self.reports.looked = self.keepers.looked
        self._wishes: dict[AttemptId, Wish] = {}
        self._asked_us = 0  # when what they answer was sent

    def held(self) -> list[AttemptId]:
        """Attempts that may have something on the node."""
        return [attempt for attempt, unit in self.units.items() if unit.local in _HELD]

    def any_fence(self) -> bool:
        """Whether a live attempt ends by itself when contact is lost."""
        return any(unit.fence for unit in self.units.values())

    # --- wishes ----------------------------------------------------------------------------------------------------

    def want(self, wishes: dict[AttemptId, Wish], sent: Sent) -> bool:
        """Take an answer's wishes; whether any of them led to a step."""
        self._wishes, self._asked_us = wishes, sent.at_us
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
        if entries and not self._board.commit(entries):
            self._board.later("retry", self._again)
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
            stale=self._stale(launch),
        )
        if step is Step.ASK:
            self._board.changed()
        if step in (Step.WAIT, Step.ASK):
            return
        if step in (Step.CLOSE, Step.REPEAT):
            entries.append(records.event(self._last_event(attempt, step), 0))
            self._board.changed()
        unit = unit or Unit(attempt, self._board.context.state_dir)
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
            return sent.rewrites == self._board.journal.rewrites
        return record.final is not None and record.final_n <= sent.acked

    def _stale(self, launch: Plain | None) -> bool:
        """Whether it ends with the lease, and these wishes are too old to begin it: see `next_step`. Their age counts,
        not what was heard since: that may have come after the controller gave the attempt up."""
        until_us = self._lease.term.begins_until_us(self._asked_us)
        return _fences(launch) and self._board.loop.clock.monotonic_us() >= until_us

    def _last_event(self, attempt: AttemptId, step: Step) -> Plain:
        now = self._board.loop.clock.now_us()
        if step is Step.CLOSE:
            return outcome.never_started(attempt, now)
        known = self._board.journal.final_event(attempt)
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
                unit.attempt,
                self._board.loop.clock.now_us(),
                "bad-launch",
                f"the launch can't be read: {error}",
            )
            entries.append(records.event(refusal, 0))
            self._report_alone(entries)
            return False
        unit.fence = decoded.job.on_lost is OnLost.SELF_FENCE
        try:
            context = replace(self._board.context, lease=self._lease.path)
            unit.write_plan(plan.build(unit.attempt, decoded, context))
        except OSError as error:
            self._board.trouble.error(
                f"{error.filename or unit.directory}: {error.strerror}; {unit.attempt} is not started yet"
            )
            self._board.later("retry", self._again)
            return False
        if record is None or (step is Step.RUN and not record.run):
            entries.append(records.intent(unit.attempt, launch or {}, self._boot, run=step is Step.RUN))
        return True

    def _report_alone(self, entries: list[Entry]) -> None:
        """An event with no deed after it."""
        if not self._board.report([entries.pop()]):
            self._board.later("retry", self._again)

    # --- deeds -----------------------------------------------------------------------------------------------------

    def _do(self, todo: _Todo) -> None:
        unit, step = todo.unit, todo.step
        log.debug(f"{unit.attempt}: {unit.local}, wanted {todo.desired.phase}: {step}")
        if step in (Step.CLOSE, Step.REPEAT):
            return
        self.units[unit.attempt] = unit
        if step is Step.PREPARE:
            unit.local = Local.PREPARING
            unit.forget_preparation()
            self.keepers.ask(unit, "prepare")
        elif step is Step.RUN:
            unit.local = Local.RUNNING
            if unit.fence:
                self._lease.write()
            self.keepers.ask(unit, "run")
        elif step is Step.STOP_PREPARING:
            unit.order = todo.desired.end or EndOrder("")
            unit.ordered_us = self._board.loop.clock.monotonic_us()
            self.keepers.kill(unit)
        elif step is Step.ORDER:
            self._order(unit, todo.desired.end or EndOrder(""))
        else:
            if step is Step.SEARCH:
                unit.assume(started=todo.desired.started)
            self.keepers.mop(unit)

    def _order(self, unit: Unit, order: EndOrder) -> None:
        if order == unit.order and unit.local is Local.ENDING:
            return
        unit.local = Local.ENDING
        try:
            unit.write_order(order)
        except FileNotFoundError:
            unit.order = (
                order  # its folder was lost: nobody could read it there, and what is left is mopped up
            )
        except OSError as error:
            unit.order = None
            self._board.trouble.error(
                f"{unit.directory}: {error.strerror}; {unit.attempt} is not told to end yet"
            )
            self._board.later("retry", self._again)
            return
        unit.ordered_us = self._board.loop.clock.monotonic_us()
        if unit.pidfd >= 0:
            unit.signal(ORDER_SIGNAL)
            failpoint("agent.end.after-signal")
        elif not unit.doing:
            self.keepers.mop(unit)  # an orphan: no shepherd reads its order

    # --- what workers came to ---------------------------------------------------------------------------------------

    def _preparer_gone(self, unit: Unit) -> None:
        result = unit.preparation()
        now = self._board.loop.clock.now_us()
        if unit.order is not None:
            unit.local = Local.INTENT
            self.keepers.mop(unit)
            return
        if result is not None and result["k"] == "prepared":
            event = outcome.prepared(unit.attempt, now)
        elif result is not None:
            event = outcome.prepare_failed(unit.attempt, now, result["code"], result["error"])
        else:
            why = unit.loss or worker.read_crash(unit.directory) or "the preparing worker was killed"
            code = "setup-timeout" if unit.loss else "worker-died"
            event = outcome.prepare_failed(unit.attempt, now, code, why)
        self._report_preparation(unit, event)

    def _report_preparation(self, unit: Unit, event: Plain) -> None:
        if not self._board.report([records.event(event, 0)]):
            self._board.later(f"prepared-{unit.attempt}", lambda: self._report_preparation(unit, event))
        elif event["kind"] == EventKind.PREPARED.value:
            unit.local = Local.PREPARED
            self._reconcile([unit.attempt], None)
        else:
            self._over(unit)

    def _over(self, unit: Unit) -> None:
        """It has ended here. Its folder stays for its logs, unless nothing ever ran."""
        self.keepers.let_go(unit)
        self.units.pop(unit.attempt, None)
        if not unit.outcome.started:
            self._board.starter.ask("purge", unit.directory, lambda _pid, _start: None)
        self._reconcile([unit.attempt], None)

    # --- the start of the agent ------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Take up every attempt that the journal holds."""
        for attempt, record in list(self._memory.records.items()):
            if record.final is None:
                self._adopt(Unit(attempt, self._board.context.state_dir), record)
        self.reports.flush()

    def _adopt(self, unit: Unit, record: Record) -> None:
        self.units[unit.attempt] = unit
        unit.read_order()
        unit.fence = _fences(record.launch)
        if unit.claimed():
            unit.local = Local.RUNNING if unit.order is None else Local.ENDING
            unit.news(after=1 << 62)  # fold all; what is new is read again below
            alive = unit.attach_recorded()
            over = unit.outcome.over
            doing = unit.outcome.worker["do"] if unit.outcome.worker else ""
            unit.reread()
            self.reports.mark(unit)
            if alive:
                unit.doing = doing
                self.keepers.hold(unit)
            elif not over:
                self.keepers.mop(unit)
        elif record.boot != self._boot:
            unit.assume(loss="the node was restarted")
            self.keepers.mop(unit)
        elif record.run and not unit.has_plan():
            unit.assume(started=True)
            self.keepers.mop(unit)
        else:
            unit.local = Local.PREPARED if record.prepared else Local.INTENT

    def adopt_orphan(self, attempt: AttemptId) -> None:
        """A unit that is on the node and in no record: held, and not touched until the controller wants its end."""
        if attempt in self.units or attempt in self._memory.ids:
            return
        log.error(f"{attempt} is on this node and in no record: it is held as an orphan")
        unit = Unit(attempt, self._board.context.state_dir, Local.RUNNING)
        unit.assume(started=True)
        unit.orphan = True
        self.units[attempt] = unit

    def orphans(self) -> list[Unit]:
        """Units without records that nothing is done about."""
        return [unit for unit in self.units.values() if unit.orphan and unit.local is Local.RUNNING]


def _fences(launch: Plain | None) -> bool:
    """Whether its job chose to end with the lease."""
    job = (launch or {}).get("job") or {}
    return bool(job.get("on_lost") == OnLost.SELF_FENCE.value)
