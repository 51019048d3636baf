"""What every handler on the core thread works with.

Comes in: the writer (State, recording), settings, the clock, what agents were heard. Goes out: nothing. Called by: loop
(makes one), intake, sync, timers, enact, recover, outcome (take it as their first argument).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.controller.beats import Beats
from orchestrator.controller.elastic import Elastic
from orchestrator.controller.settings import Settings
from orchestrator.controller.writer import Writer
from orchestrator.ledger.state import State
from orchestrator.model.clock import Clock


@dataclass(slots=True)
class Desk:
    """The core's tools. `told`: nodes that have sent an inventory to this controller; `acked`: by node, the highest
    agent event that needs no repeating, whether it made a fact or not; `wants_inventory`: nodes to be asked for one;
    `spent`: by node, the join token that has let it in while it has not been heard with its own; `elastic`: what is
    known of clouds."""

    writer: Writer
    clock: Clock
    settings: Settings
    beats: Beats
    told: dict[str, bool] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    wants_inventory: dict[str, bool] = field(default_factory=dict)
    spent: dict[str, str] = field(default_factory=dict)
    elastic: Elastic = field(default_factory=Elastic)

    @property
    def state(self) -> State:
        """The present state; another object after a reload."""
        return self.writer.state

    def forget(self) -> None:
        """What was heard may not be in the ledger: let every node tell again."""
        self.told, self.acked, self.wants_inventory, self.spent = {}, {}, {}, {}
        self.elastic.forget(self.clock.monotonic_us())

    def touch_jobs_on(self, node: str) -> None:
        """Jobs with a share on the node look different now, or should be told something else there."""
        for job in self.state.jobs.values():
            if job.attempt is not None and job.attempt.part(node) is not None:
                self.writer.touched_jobs[job.id] = job
