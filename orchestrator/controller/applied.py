"""What was applied to the cluster, as the store keeps it beside the events.

Comes in: an event's stored form, or a kept row. Goes out: the other. Called by: writer (keeps), api (a plan to an
earlier record).
"""

from __future__ import annotations

from orchestrator.ledger.events import TYPE_OF, ClusterApplied, StoredEvent, from_stored
from orchestrator.store.base import AppliedRow

TYPE, _ = TYPE_OF[ClusterApplied]


def applied_row(stored: StoredEvent) -> AppliedRow:
    """What is kept of an event of that type."""
    digest, commit = stored.body["digest"], stored.body.get("commit", "")
    return AppliedRow(stored.seq, stored.t_us, stored.by, digest, commit, stored.v, stored.body)


def from_applied(row: AppliedRow) -> ClusterApplied:
    """The event's body; ValueError if this version can't read it."""
    stored = StoredEvent(row.seq, row.t_us, 0, TYPE, row.v, "cluster", row.seq, row.by, row.body)
    body: ClusterApplied = from_stored(stored).body
    return body
