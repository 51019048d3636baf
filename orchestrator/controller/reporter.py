"""What passes tell: the reasons of the classes that wait.

Comes in: calls from the scheduler and the pass over capacity. Goes out: the reasons for the view. Called by: scheduler
and autoscale (through the protocols of model/decisions), loop (reads it after the pass).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.ledger.state import ClassKey
from orchestrator.model.decisions import Reasons
from orchestrator.model.reasons import Reason


@dataclass(slots=True)
class PassReporter:
    """One per pass. `waits` stays None where a pass had nothing to look at: what the one before told still holds."""

    waits: Reasons | None = None

    def waiting(self, reasons: Reasons) -> None:
        """Why those wait that wait now."""
        self.waits = reasons


@dataclass(slots=True)
class CapacityPassReporter:
    """One per pass over capacity."""

    reasons: dict[ClassKey, Reason] = field(default_factory=dict)

    def class_blocked(self, key: ClassKey, reason: Reason) -> None:
        """The first reason of a class in a pass stands."""
        self.reasons.setdefault(key, reason)


@dataclass(frozen=True, slots=True)
class Told:
    """The reasons of one moment: what the pass over capacity tells of a class goes before what the scheduler does."""

    waits: Reasons | None = None
    capacity: dict[ClassKey, Reason] = field(default_factory=dict)

    def get(self, key: ClassKey) -> Reason | None:
        """The reason of a class; None if no pass knows one."""
        found = self.capacity.get(key)
        return found if found is not None or self.waits is None else self.waits.get(key)
