"""What a pass tells: the reasons of the classes that wait.

Comes in: calls from the scheduler. Goes out: the reasons for the view. Called by: scheduler
(through the Reporter protocol), loop (reads it after the pass).
"""

from __future__ import annotations

from typing import Any

from orchestrator.ledger.state import ClassKey
from orchestrator.model.reasons import Reason


class PassReporter:
    """One per pass."""

    def __init__(self) -> None:
        self.reasons: dict[ClassKey, Reason] = {}

    def class_blocked(self, key: Any, reason: Reason) -> None:
        """The first reason of a class in a pass stands."""
        self.reasons.setdefault(key, reason)
