"""The controller's loop, on one page: from the inbox through the ledger and the pass to the view.

Comes in: the inbox, the store, the clock. Goes out: events, answers, the published view. Called by: service, in the
core thread, which alone touches State.

An error of the disk ends nothing: whoever was to be answered in that cycle is told, State is read anew, and the loop
goes on. A command that fails as nobody had foreseen is told so, and those that came with it are handled without it.
Only a newer controller (Fenced) or a ledger that can't be read ends it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any, TypeGuard

from orchestrator.controller import capacity, capacity_tasks, enact, intake, months
from orchestrator.controller.beats import Beats
from orchestrator.controller.commands import Command, Query, Submit, Sync
from orchestrator.controller.desk import Desk
from orchestrator.controller.elastic import Elastic
from orchestrator.controller.inbox import NOTHING, Inbox, Item, News, Published, tell
from orchestrator.controller.notify import NOBODY, Notify
from orchestrator.controller.publish import Publisher
from orchestrator.controller.reporter import PassReporter, Told
from orchestrator.controller.settings import Settings
from orchestrator.controller.timers import Timers
from orchestrator.controller.upkeep import Upkeep
from orchestrator.controller.view import View
from orchestrator.controller.writer import Writer
from orchestrator.ledger import events
from orchestrator.model.clock import Clock
from orchestrator.model.decisions import Decision, Reasons
from orchestrator.model.errors import GanglineError, Unavailable
from orchestrator.model.failpoints import failpoint
from orchestrator.model.protocol import EventKind
from orchestrator.scheduler import decide, policy_of
from orchestrator.store.base import Store

log = logging.getLogger("gangline.controller")

JOB_ID_GAP = 1_000_000  # ids left out after a restore: clients may know jobs, and arrays, that it does not
MOST_AGAIN = (
    4  # times that one cycle reads State anew for commands that failed unforeseen: each may take seconds
)
RETRY_S = 1.0  # after an error of the disk


class Core:
    """The loop and all that it owns."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        inbox: Inbox,
        view: View,
        beats: Beats,
        notify: Notify = NOBODY,
        elastic: Elastic | None = None,
    ) -> None:
        self.clock = clock
        self._store = store
        self._settings = settings
        self._inbox = inbox
        self._view = view
        self._beats = beats
        self._notify = notify
        self._timers = Timers()
        self._upkeep = Upkeep(store, clock, settings)
        self._elastic = elastic or Elastic()
        self._publisher = Publisher(view, beats, self._elastic)
        self._waits: Reasons | None = None  # as the scheduler's last pass had it
        self._doubted = False
        self._wait_s = 0.0

    def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        published: Published,
        ready: Callable[[], None],
    ) -> None:
        """The event loop that waiters live on, what to call there after each publication, and once when ready."""
        self.loop = loop
        self._published = published
        self._ready = ready

    def doubt(self) -> None:
        """An agent says that there is a newer controller: ask the ledger, whose word alone counts."""
        self._doubted = True
        self._inbox.wake()

    def run(self) -> None:
        """Until the inbox is closed; raises Fenced, or what made the ledger unreadable."""
        self._open()
        self._ready()
        if self._desk.writer.since_snapshot >= self._settings.snapshot_after:
            self._snapshot()
        while not self._inbox.closed:
            self._cycle()
        self._snapshot()

    def _cycle(self) -> None:
        begun_us = self.clock.monotonic_us()
        if self._notify.alive(begun_us):
            self.loop.call_soon_threadsafe(self._notify.answered)
        settings = self._settings
        items = self._inbox.take(self._wait_s, settings.most_per_cycle, settings.submits_per_cycle)  # 1
        self._beats.begun(begun_us)
        idle = not items and self._wait_s > 0
        late: list[Item] = []  # whose answers come with what the pass decides
        try:
            self._settle_doubt()
            self._take_in(items)  # 2, 3 facts, folded as they are recorded, in one group commit
            news = self._publish(None)  # the word to start is durable: it waits for no pass
            now, late = self._parted(items, news.nodes)
            self._tell(now, news)
            items = []
            reasons = self._decide()  # 4 on the same limits; 5 in one transaction
            capacity_tasks.hand_over(self._desk)  # 6 to clouds here, to agents by what is published
            news = self._publish(reasons)  # 7
            self._tell(late, news)
            late = []
            self._upkeep.step(self._desk.writer, idle)  # 8 a little of a snapshot, or of pruning
            busy = self._desk.writer.stirred or self._upkeep.busy
            self._wait_s = 0.0 if busy else self._timers.next_s(self._desk)
        except Unavailable as error:
            self._tell(late, NOTHING)  # what they told is in the ledger
            self._give_up(items, error)
        self._beats.begun(begun_us)

    def _settle_doubt(self) -> None:
        """Fenced if a newer controller owns the ledger."""
        if self._doubted:
            self._doubted = False
            self._desk.writer.make_sure()

    # --- the steps ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Take the ledger, note a restore, publish what there is."""
        writer = Writer(self._store, self.clock)
        self._desk = Desk(writer, self.clock, self._settings, self._beats, elastic=self._elastic)
        backup_us = self._store.restored_us()
        if backup_us:
            body = events.LedgerRestored(writer.state.next_job + JOB_ID_GAP, backup_us)
            writer.record(body, "ledger")
            writer.note_restore()
        settings = self._settings
        started = events.ControllerStarted(settings.version, settings.host, settings.lease_s)
        writer.record(started, "controller")
        writer.commit()
        self._tell([], self._publish(Told(self._waits, self._elastic.reasons)))
        gc.collect()
        gc.freeze()

    def _take_in(self, items: list[Item]) -> None:
        """Each command into facts and its answer, what time brings, and one commit for all of it."""
        months.due(self._desk)
        left = list(items)
        failed = 0
        while (broken := self._handle_all(left)) is not None:
            del left[broken]
            self._start_over()
            failed += 1
            if failed == MOST_AGAIN:
                self._put_off(left)
                break
        writer = self._desk.writer
        self._timers.due(self._desk)
        capacity.due(self._desk)
        months.due(self._desk)
        if writer.dirty:
            failpoint("controller.intent.before-commit")
            writer.commit()
            failpoint("controller.intent.after-commit")
        else:
            writer.stay_sure()

    def _put_off(self, items: list[Item]) -> None:
        """State was read anew often enough for one cycle: time and the watchdog go on."""
        for item in items:
            item.answer = Unavailable("controller.again", "too much went wrong beside this", "send it again")

    def _handle_all(self, items: list[Item]) -> int | None:
        """Answer each; the place of the first that failed as nobody had foreseen: half of it may be in State now."""
        submits = (item.command for item in items if isinstance(item.command, Submit))
        self._desk.writer.look_up([submit.key for submit in submits if submit.key])
        for place, item in enumerate(items):
            try:
                item.answer = self._handle(item)
            except Exception as error:
                log.exception("a command failed: %s", type(item.command).__name__)
                item.answer = GanglineError(
                    "controller.internal",
                    f"the controller could not handle this: {error}",
                    "its log has the details",
                )
                return place
        return None

    def _handle(self, item: Item) -> Any:
        """A refusal is an answer. What a question fails with has changed nothing."""
        try:
            return intake.handle(self._desk, item.command)
        except GanglineError as error:
            return error
        except Exception as error:
            if not isinstance(item.command, Query):
                raise
            log.exception("a question failed")
            return Unavailable("controller.query", f"the question could not be answered: {error}")

    def _parted(self, items: list[Item], nodes: list[str]) -> tuple[list[Item], list[Item]]:
        """Whom to answer now, and whom after the pass: a node that has given devices back is likely to be given work in
        it, and hears of it with this answer. What it does until then would wait for the pass anyway."""
        if not self._desk.writer.stirred:
            return items, []
        known = dict.fromkeys(nodes)
        now: list[Item] = []
        late: list[Item] = []
        for item in items:
            (late if _frees(item.command) and item.command.request.node not in known else now).append(item)
        return now, late

    def _tell(self, items: list[Item], news: News) -> None:
        """Answer these, and wake whoever waits for what was published."""
        if items or news.jobs or news.nodes:
            self.loop.call_soon_threadsafe(tell, items, self._published, news)

    def _decide(self) -> Told | None:
        """The passes, if they may decide anew; their decisions are durable when this returns."""
        desk = self._desk
        woken = self._waits is not None and self.clock.now_us() >= self._waits.wake_us
        stirred = desk.writer.stirred or woken
        if not stirred and not capacity.pass_due(desk):
            return None
        decisions = self._schedule() if stirred else ()
        bought = capacity.decide(desk, self._waits)
        if decisions or bought:
            failpoint("controller.decide.before-commit")
            desk.writer.commit()
            failpoint("controller.decide.after-commit")
        desk.writer.stirred = stirred and self._waits is not None and self._waits.left_over
        told = Told(self._waits, self._elastic.reasons)
        return told if stirred or bought or told.capacity != self._view.reasons.capacity else None

    def _schedule(self) -> tuple[Decision, ...]:
        """The scheduler's pass, recorded; what waits and why is kept for the passes over capacity."""
        desk, reporter = self._desk, PassReporter()
        decisions = decide(
            desk.state,
            policy_of(desk.state.cluster),
            self.clock.now_us(),
            self._settings.work_budget,
            reporter,
        )
        enact.enact(desk, decisions)
        self._waits = reporter.waits or self._waits
        return decisions

    def _publish(self, reasons: Told | None) -> News:
        writer = self._desk.writer
        if reasons is None and not writer.touched:
            return NOTHING
        if writer.everything_touched:
            self._timers = Timers()
            writer.touched_jobs.update(writer.state.jobs)
        for job in writer.touched_jobs.values():
            self._timers.watch(job)
        news = News(*self._publisher.publish(writer, reasons))
        failpoint("controller.publish.after")
        return news

    # --- when something goes wrong --------------------------------------------------------------------------

    def _give_up(self, items: list[Item], error: Unavailable) -> None:
        """Nothing of this cycle is in the ledger: say so to whoever has no answer yet, and start from the disk. That
        goes for refusals too: one may have been for what the same cycle did."""
        log.error("%s: %s", error.code, error.message)
        for item in items:
            item.answer = error
        self._tell(items, NOTHING)
        self._start_over()
        self._tell([], self._publish(Told(self._waits, self._elastic.reasons)))
        self._wait_s = RETRY_S

    def _start_over(self) -> None:
        """State from the disk; what was heard since then may not be in it, so nodes have to tell again."""
        self._desk.writer.reload()
        self._desk.forget()
        self._beats.forget()

    def _snapshot(self) -> None:
        """Keep the state as it is now."""
        self._upkeep.finish(self._desk.writer)


def _frees(command: Command) -> TypeGuard[Sync]:
    """Whether it is a node's word that something has ended there."""
    return isinstance(command, Sync) and any(
        event.kind is EventKind.ENDED for event in command.request.events
    )
