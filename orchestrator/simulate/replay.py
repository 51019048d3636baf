"""Whether the scheduler decides again what a recorded ledger says that it has decided.

Comes in: the events of a ledger, the State before them, a policy. Goes out: how many passes were replayed, and the
first difference. Called by: cli `replay`, tests.

A pass leaves its decisions in one batch: `attempt.allocated` by `scheduler`, in order, and `attempt.committed` with
those of one node. State before the first of them is what that pass has seen. What it depends on besides is not in the
ledger: the policy, the work budget, and the time to the microsecond (here: that of its first decision, which is a
little later). Passes that decided nothing leave no trace, and are not replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.ledger import events
from orchestrator.ledger.apply import apply
from orchestrator.ledger.events import Event
from orchestrator.ledger.state import State
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.decisions import Reasons, Start
from orchestrator.scheduler import Policy, decide

BY_SCHEDULER = "scheduler"
PolicyFor = Callable[[ClusterSpec | None], Policy]  # of the cluster as it is wanted at that time


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision that is not the same: after event `seq` at `t_us`, the one number `at` (from 1) of its pass.
    None: there was none here, or none there."""

    seq: int
    t_us: int
    at: int
    recorded: Start | None
    decided: Start | None


@dataclass(slots=True)
class Replayed:
    """What came of it: so many events folded, passes and starts replayed."""

    events: int = 0
    passes: int = 0
    starts: int = 0
    difference: Difference | None = None


class _Deaf:
    """Asks for no reasons."""

    def waiting(self, reasons: Reasons) -> None:
        """Nobody asks."""


def replay(
    state: State,
    recorded: Iterable[Event],
    policy: PolicyFor,
    work_budget: int,
) -> Replayed:
    """Fold the events into `state`, and decide again at each batch of decisions, until the first difference.
    LedgerError for events that do not fit."""
    found = Replayed()
    batch: list[Event] = []
    for event in recorded:
        if batch and not _same_pass(batch[0], event):
            _decide_again(state, batch, policy, work_budget, found)
            if found.difference is not None:
                return found
            _fold(state, batch, found)
            batch = []
        if batch or _is_start(event):
            batch.append(event)
        else:
            _fold(state, [event], found)
    if batch:
        _decide_again(state, batch, policy, work_budget, found)
        if found.difference is None:
            _fold(state, batch, found)
    return found


def _is_start(event: Event) -> bool:
    return event.by == BY_SCHEDULER and isinstance(event.body, events.AttemptAllocated)


def _same_pass(first: Event, event: Event) -> bool:
    return event.batch == first.batch and event.by == BY_SCHEDULER


def _fold(state: State, batch: list[Event], found: Replayed) -> None:
    for event in batch:
        apply(state, event)
    found.events += len(batch)


def _decide_again(
    state: State, batch: list[Event], policy: PolicyFor, work_budget: int, found: Replayed
) -> None:
    recorded = [_start(event.body) for event in batch if _is_start(event)]
    decisions: tuple[object, ...] = decide(state, policy(state.cluster), batch[0].t_us, work_budget, _Deaf())
    decided = [one for one in decisions if isinstance(one, Start)]
    found.passes += 1
    for at in range(max(len(recorded), len(decided))):
        there = recorded[at] if at < len(recorded) else None
        here = decided[at] if at < len(decided) else None
        if there != here:
            found.difference = Difference(state.seq, batch[0].t_us, at + 1, there, here)
            return
        found.starts += 1


def _start(body: events.AttemptAllocated) -> Start:
    return Start(body.attempt, body.placements, body.master_address, body.master_port, body.time_limit_s)
