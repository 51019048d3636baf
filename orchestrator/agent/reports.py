"""From workers' records to events in the outbox.

Comes in: notices of workers, and a look at all of them from time to time. Goes out: events, written down once each;
a call for each unit that is over. Called by: the daemon (notices), keepers (a worker's death).
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.agent import records
from orchestrator.agent.board import Board
from orchestrator.agent.records import Entry
from orchestrator.agent.unit import Unit
from orchestrator.model.failpoints import failpoint
from orchestrator.model.ids import AttemptId, parse_unit
from orchestrator.model.protocol import EventKind

GATHER_S = 0.005  # a start waits so long for its end, so that short ranks cost one report and not two


class Reports:
    """`over` is called with a unit whose last event is in the outbox."""

    def __init__(self, board: Board, over: Callable[[Unit], None]) -> None:
        self._board = board
        self._over = over
        self.looked: Callable[[Unit], None] = lambda _unit: None  # called with what was read and is not over
        self._dirty: set[AttemptId] = set()

    def noticed(self, name: str, *, hurry: bool) -> None:
        """A worker says that its unit has a new record."""
        try:
            self._dirty.add(parse_unit(name))
        except ValueError:
            return
        if hurry:
            self.flush()
        elif not self._board.loop.pending("gather"):
            self._board.loop.after("gather", GATHER_S, self.flush)

    def look_at_all(self) -> None:
        """Read what notices may have failed to tell."""
        self._dirty.update(
            each.attempt for each in self._board.units.values() if each.doing or each.pidfd >= 0
        )
        self.flush()

    def look_at(self, unit: Unit) -> None:
        """Read what this one has written."""
        self._dirty.add(unit.attempt)
        self.flush()

    def mark(self, unit: Unit) -> None:
        """Read it with the next flush."""
        self._dirty.add(unit.attempt)

    def flush(self) -> None:
        """Read the records of what is dirty, write their events into the outbox, and act on what is over."""
        self._board.loop.cancel("gather")
        looked = [self._board.units[attempt] for attempt in self._dirty if attempt in self._board.units]
        self._dirty.clear()
        entries = [entry for unit in looked for entry in self._events_of(unit)]
        if entries and not self._board.report(entries):
            for unit in looked:
                unit.reread()
                self._dirty.add(unit.attempt)
            self._board.later("retry-flush", self.flush)
            return
        for unit in looked:
            if unit.outcome.over:
                self._over(unit)
            else:
                self.looked(unit)

    def _events_of(self, unit: Unit) -> list[Entry]:
        record = self._board.journal.memory.records.get(unit.attempt)
        news = unit.news(record.offset if record is not None else 0)
        if any(event["kind"] == EventKind.STARTED.value for event, _ in news):
            failpoint("agent.unit.after")
        return [records.event(event, offset) for event, offset in news]
