"""What one pass carries along: State as the pass has changed it so far, and what it has decided, kept and closed.

Comes in: State, `Policy`, the time, a work budget. Goes out: `Pass`. Called by: cycle (makes it), starting and keeping
(work on it).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from orchestrator.ledger.capacity import Flags
from orchestrator.ledger.limits import Amounts
from orchestrator.ledger.state import ClassKey, State, class_key
from orchestrator.ledger.statement import Statement
from orchestrator.model.attempt import Placement
from orchestrator.model.decisions import Decision
from orchestrator.model.reasons import Reason
from orchestrator.scheduler.memory import Memory
from orchestrator.scheduler.policy import Policy


@dataclass(frozen=True, slots=True)
class Kept:
    """Nodes kept for a blocked job; `parts` is what was free there, `amounts` what of its limits in `scope`."""

    job: int
    key: ClassKey
    rows: tuple[int, ...]
    parts: tuple[Placement, ...]
    scope: str
    amounts: Amounts


@dataclass(slots=True)
class Pass:
    """One pass. All that it takes of State goes through the statement, which gives it back in the end."""

    state: State
    memory: Memory
    policy: Policy
    now_us: int
    probes: int  # that are left
    statement: Statement
    bought: dict[int, list[str]]  # job -> nodes that were bought for it
    awaited: list[int]  # the numbers of the shapes of those jobs
    out: Flags  # shapes, by number, that fit nowhere any more
    decisions: list[Decision] = field(default_factory=list)
    told: dict[ClassKey, Reason] = field(default_factory=dict)  # reasons that do not follow from what is free
    kept: list[Kept] = field(default_factory=list)
    news: bool = False  # whether it was the first to close some shape
    blocked: int = 0  # jobs that nodes were kept for, or that none could be kept for

    @property
    def keeps(self) -> bool:
        """Whether the next blocked job has nodes kept for it."""
        return self.blocked < self.policy.kept

    @property
    def left_over(self) -> bool:
        """Whether the budget ran out, and the next pass will come further."""
        return self.probes <= 0 and bool(self.decisions or self.news)


def open_pass(state: State, memory: Memory, policy: Policy, now_us: int, work_budget: int) -> Pass:
    """A pass that has not looked at anything."""
    memory.begin(state)
    out = np.zeros(len(memory.closed), bool)
    bought = _bought(state, now_us)
    awaited = _shapes_of(state, memory, bought)
    return Pass(state, memory, policy, now_us, work_budget, Statement(state), bought, awaited, out)


def _bought(state: State, now_us: int) -> dict[int, list[str]]:
    """Waiting jobs for which nodes were bought, with the names of those nodes."""
    found: dict[int, list[str]] = {}
    for fleet in state.fleets.values():
        if fleet.intent.job and now_us < fleet.intent.until_us:
            found.setdefault(fleet.intent.job, []).extend(one.node for one in fleet.instances)
    return found


def _shapes_of(state: State, memory: Memory, jobs: Iterable[int]) -> list[int]:
    """The numbers of the shapes of these jobs, as far as they wait."""
    there = (state.jobs[job] for job in jobs if job in state.jobs)
    keys = (class_key(job.spec, job.owner.name).shape for job in there)
    return [memory.shapes[key].number for key in keys if key in memory.shapes]
