"""What the parts that handle attempts share: the units, the journal, the loop, and how something is written down.

Comes in: journal entries. Goes out: whether they are durable; a call when there is something to report. Called by:
attempts, reports, keepers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.agent import log
from orchestrator.agent.journal import Journal, JournalError
from orchestrator.agent.loop import Loop
from orchestrator.agent.plan import NodeContext
from orchestrator.agent.records import Entry
from orchestrator.agent.starter import Starter
from orchestrator.agent.unit import Unit
from orchestrator.model.failpoints import failpoint
from orchestrator.model.ids import AttemptId

RETRY_S = 1.0  # between attempts while the disk is full or a worker could not be made


@dataclass(slots=True)
class Board:
    """One per daemon. `changed` is called when the outbox has something new."""

    journal: Journal
    starter: Starter
    loop: Loop
    context: NodeContext
    changed: Callable[[], None]
    units: dict[AttemptId, Unit] = field(default_factory=dict)
    trouble: log.Repeated = field(default_factory=log.Repeated)

    def commit(self, entries: list[Entry]) -> bool:
        """Write down before anything is done; False if that is not possible now."""
        try:
            self.journal.commit(entries)
        except JournalError as error:
            self.trouble.error(f"{error}; nothing is started or reported until it can be written")
            return False
        self.trouble.over("the journal can be written again")
        return True

    def report(self, entries: list[Entry]) -> bool:
        """Write events into the outbox; False if that is not possible now."""
        failpoint("agent.event.before-outbox")
        if not self.commit(entries):
            return False
        failpoint("agent.event.after-outbox")
        self.changed()
        return True

    def later(self, name: str, call: Callable[[], None]) -> None:
        """Try again in a while."""
        self.loop.after(name, RETRY_S, call)
