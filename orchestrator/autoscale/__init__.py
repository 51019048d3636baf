"""PURE. What is bought for the work that waits, and what is given back.

Comes in: State, what is on offer, policy, the time, a work budget, a Reporter. Goes out: decisions about capacity;
State is as it was. Called by: controller (after the scheduler's pass, on the same limits), simulate.
"""

from orchestrator.autoscale.cycle import decide
from orchestrator.autoscale.policy import Policy

__all__ = ["Policy", "decide"]
