"""GPU-hours on paper: what a State's records say was used in its month and may still be, without its indexes."""

from __future__ import annotations

from orchestrator.ledger.hours import HOURS, counts_hours
from orchestrator.ledger.scopes import queue_scope
from orchestrator.ledger.state import State, attempt_placements, ends_us, milli_of

US = 1_000_000


def hours_on_paper(state: State) -> dict[tuple[str, str], int]:
    """Milli-GPU-seconds by scope, as the limit tree should have them."""
    if not counts_hours(state.cluster):
        assert state.hours is None
        assert not state.spent
        return {}
    begin_us, ends = state.month or (0, 1 << 62)
    found = {(name, HOURS): amount for name, amount in state.spent.items() if name in state.limits.scopes}
    for job in state.jobs.values():
        if job.attempt is None:
            continue
        lies_us = min(ends_us(job.attempt), ends) - max(job.attempt.allocated_us, begin_us)
        amount = milli_of(attempt_placements(job.attempt)) * max(-(-lies_us // US), 0)
        for scope in state.limits.path(queue_scope(job.spec.queue)):
            found[scope.name, HOURS] = found.get((scope.name, HOURS), 0) + amount
    return {key: amount for key, amount in found.items() if amount}
