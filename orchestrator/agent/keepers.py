"""The lives of workers: asked for, held, found dead, and watched where they may hang.

Comes in: units and what should be done for them. Goes out: requests to the nursery, signals; a call when a preparer
is done. Called by: attempts (deeds, adoption), the daemon (the watch).
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from orchestrator.agent import log, outcome, plan, procfs, records, worker
from orchestrator.agent.board import Board
from orchestrator.agent.loop import READ
from orchestrator.agent.reconcile import Local
from orchestrator.agent.reports import Reports
from orchestrator.agent.shepherd import ORDER_SIGNAL
from orchestrator.agent.unit import Unit
from orchestrator.model.clock import SECOND
from orchestrator.model.failpoints import failpoint

MOST_TRIES = 3  # workers for one attempt that die before they take it
SETUP_S = (
    120.0  # a worker that has not set its attempt up after so long hangs: its file server does not answer
)
SLOW_S = (
    10.0  # beyond grace and gate, before a worker that should have ended its unit counts as hanging itself
)


class Keepers:
    """`prepared` is called with a unit whose preparer is gone."""

    def __init__(self, board: Board, reports: Reports, prepared: Callable[[Unit], None]) -> None:
        self._board = board
        self._reports = reports
        self._prepared = prepared

    def ask(self, unit: Unit, do: str) -> None:
        """A worker that does `do` for the unit."""
        unit.doing = do
        unit.asked_us = self._now()
        unit.asks += 1
        ask = unit.asks

        def made(pid: int, start: int) -> None:
            # A worker's record may come first: then that was all of it, and its process serves others by now.
            if unit.asks == ask and unit.doing == do:
                self._made(unit, do, pid, start)

        unit.request = self._board.starter.ask(do, unit.directory, made)

    def mop(self, unit: Unit) -> None:
        """Make sure that nothing of it is left and that it never starts."""
        unit.local = Local.ENDING
        try:
            if not unit.has_plan():
                unit.write_plan(plan.bare(unit.attempt, self._board.context))
        except OSError as error:
            self._board.trouble.error(
                f"{unit.directory}: {error.strerror}; {unit.attempt} is not cleaned up yet"
            )
            self._board.later(f"mop-{unit.attempt}", lambda: self.mop(unit))
            return
        self.ask(unit, "mop")

    def hold(self, unit: Unit) -> None:
        """Hear of the death of the worker that the unit is attached to, and repeat an order that it may have missed."""
        self._board.loop.watch(unit.pidfd, READ, lambda _: self.gone(unit))
        unit.asked_us = unit.asked_us or self._now()
        if unit.order is not None:
            unit.ordered_us = unit.ordered_us or self._now()
        if unit.order is not None and unit.doing == "run":
            unit.signal(ORDER_SIGNAL)
            failpoint("agent.end.after-signal")
        elif unit.order is not None and unit.doing == "prepare":
            self.kill(unit)

    def kill(self, unit: Unit) -> None:
        """End its worker: through the nursery, which knows whether the process still works for this unit."""
        if unit.pidfd < 0:
            return  # `hold` kills it when it is known
        unit.killed_us = self._now()
        self._board.starter.ask(
            "kill",
            "",
            lambda pid, known: self._kill_told(unit, pid, known),
            target=unit.request,
            pid=unit.pid,
        )

    def _kill_told(self, unit: Unit, pid: int, known: int) -> None:
        if not pid and known:
            unit.signal(signal.SIGKILL)  # a worker of an earlier nursery: it serves nobody else
        elif not pid:
            unit.killed_us = 0  # the request was lost with the nursery: the watch tries again

    def looked(self, unit: Unit) -> None:
        """What the unit's files say of its worker: a preparer may have come to its result, and its process live on for
        others; or another process has claimed the attempt than the one that we were told of."""
        if unit.doing == "prepare" and unit.preparation() is not None:
            self.let_go(unit)
            unit.doing = ""
            self._prepared(unit)
            return
        recorded = unit.outcome.worker
        if unit.doing != "run" or recorded is None or unit.pidfd < 0 or unit.pid == recorded["pid"]:
            return
        self.let_go(unit)
        if unit.attach_recorded():
            unit.request = 0
            self.hold(unit)
        else:
            self.gone(unit)

    def let_go(self, unit: Unit) -> None:
        """The unit is over, whether its worker lives on or not."""
        if unit.pidfd >= 0:
            self._board.loop.forget(unit.pidfd)
            unit.detach()

    def _made(self, unit: Unit, do: str, pid: int, start: int) -> None:
        if self._board.units.get(unit.attempt) is not unit:
            return  # it is over already
        if not pid:  # lost with its nursery; asking again is safe, for one worker alone can claim
            self.ask(unit, do)
        elif unit.attach(pid, start):
            self.hold(unit)
        else:
            self.gone(unit)

    def gone(self, unit: Unit) -> None:
        """Its worker has died: with everything recorded, or by a kill."""
        self.let_go(unit)
        did, unit.doing = unit.doing, ""
        if not did:
            return
        if did == "prepare":
            self._prepared(unit)
            return
        self._reports.look_at(unit)
        if unit.outcome.over or unit.doing:
            return
        if unit.attach_recorded():  # another worker had claimed it before ours
            unit.doing = unit.outcome.worker["do"] if unit.outcome.worker else ""
            self.hold(unit)
        elif did == "run" and not unit.claimed() and unit.tries < MOST_TRIES and unit.order is None:
            unit.tries += 1  # the worker died before it took the attempt: it never started
            self.ask(unit, "run")
        elif did == "mop":
            why = worker.read_crash(unit.directory) or "killed"
            log.error(f"{unit.attempt}: the cleaning worker died: {why}; again")
            self._board.later(f"mop-{unit.attempt}", lambda: self.mop(unit))
        else:
            if not unit.claimed() and unit.order is None:
                unit.assume(
                    loss=unit.loss
                    or worker.read_crash(unit.directory)
                    or "its workers died before they took it"
                )
            self.mop(unit)

    # --- workers that hang -----------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Kill workers that hang; say so where even that does not help."""
        for unit in list(self._board.units.values()):
            if unit.pidfd < 0:
                continue
            if unit.killed_us:
                self._watch_killed(unit)
            elif self._hangs(unit):
                log.error(f"{unit.attempt}: its worker hangs and is killed: {procfs.describe([unit.pid])}")
                self.kill(unit)

    def _hangs(self, unit: Unit) -> bool:
        now = self._now()
        if unit.ordered_us and unit.order is not None:
            patience = unit.order.grace_s + self._board.context.stuck_s + SLOW_S
            return not unit.outcome.stuck and now - unit.ordered_us > patience * SECOND
        setting_up = unit.doing == "prepare" or (unit.doing == "run" and not unit.outcome.started)
        if setting_up and now - unit.asked_us > SETUP_S * SECOND:
            unit.assume(
                loss=f"setting it up took over {SETUP_S:.0f} s: does the file server of its folders answer?"
            )
            return True
        return False

    def _watch_killed(self, unit: Unit) -> None:
        """SIGKILL can't end a process that waits in the kernel: then the attempt may still come alive."""
        if unit.outcome.stuck or self._now() - unit.killed_us < self._board.context.stuck_s * SECOND:
            return
        error = f"SIGKILL has not ended its own worker {procfs.describe([unit.pid])}"
        event = outcome.stuck(unit.attempt, self._board.loop.clock.now_us(), error)
        record = self._board.journal.memory.records.get(unit.attempt)
        if self._board.report([records.event(event, record.offset if record is not None else 0)]):
            unit.outcome.stuck = True

    def _now(self) -> int:
        return self._board.loop.clock.monotonic_us()
