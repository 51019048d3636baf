"""The month in which GPU-hours of queues count, as a fact.

Comes in: the clock, the cluster's zone. Goes out: an event when a month has begun. Called by: loop, once per cycle. A
file with another zone has its say when the month is over.
"""

from __future__ import annotations

from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.model.calendar import month_of


def due(desk: Desk) -> None:
    """Record the month if limits need one and it is not that of the ledger."""
    state, now_us = desk.state, desk.clock.now_us()
    cluster = state.cluster
    if cluster is None or state.hours is None or (state.month is not None and now_us < state.month.ends_us):
        return
    desk.writer.record(events.MonthBegan(*month_of(cluster.timezone, now_us)), "cluster")
