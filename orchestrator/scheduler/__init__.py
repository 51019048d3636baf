"""PURE. What starts now, on which devices, and why the rest waits.

Comes in: State, policy, the time, a work budget, a Reporter. Goes out: decisions; State is as it was. Called by:
controller (once per pass), simulate (the same with a virtual clock).
"""

from orchestrator.scheduler.cycle import decide
from orchestrator.scheduler.policy import Policy, policy_of

__all__ = ["Policy", "decide", "policy_of"]
