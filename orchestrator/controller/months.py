"""The month in which GPU-hours of queues count, as a fact.

Comes in: the clock, the cluster's zone. Goes out: an event when a month has begun, or is another zone's. Called by:
loop, before and after the commands of each cycle: what ends in a new month counts there, and a new file's limits have
their month before the pass.
"""

from __future__ import annotations

from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.hours import Month
from orchestrator.model.calendar import month_of


def due(desk: Desk) -> None:
    """Record the month if limits need one and it is not that of the ledger. One that lies before that is none: of a
    zone where the month before is not over yet, or of a clock that was set back."""
    state = desk.state
    if state.cluster is None or state.hours is None:
        return
    month = Month(*month_of(state.cluster.timezone, max(desk.clock.now_us(), state.t_us)))
    if month.may_follow(state.month):
        desk.writer.record(events.MonthBegan(month.begin_us, month.ends_us), "cluster")
