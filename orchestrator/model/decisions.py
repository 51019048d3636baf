"""What a pass decides: one type each. Waiting is no decision; it is a reason, and leaves through the Reporter.

Comes in: nothing. Goes out: `Start` and `Decision`. Called by: scheduler (makes them), controller (turns them into
events). Book, unbook, plan_start, preempt, resize, reject and the decisions about capacity join later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orchestrator.model.attempt import Placement
from orchestrator.model.ids import AttemptId
from orchestrator.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Start:
    """Give the gang these devices now. `time_limit_s` 0 means none; the port is for rank 0's rendezvous."""

    attempt: AttemptId
    placements: tuple[Placement, ...]
    master_address: str
    master_port: int
    time_limit_s: int


Decision = Start  # a union once there is a second kind


class Reporter(Protocol):
    """Where a pass tells what it did, so that the core logs nothing itself."""

    def class_blocked(self, key: object, reason: Reason) -> None:
        """No job of this class starts now."""
