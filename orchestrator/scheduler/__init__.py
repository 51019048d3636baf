"""PURE. What starts now, on which devices, and why the rest waits.

Comes in: State, policy, the time, a work budget, a Reporter. Goes out: decisions; State is as it was. Called by:
controller (once per pass), simulate (the same with a virtual clock).
"""

from orchestrator.scheduler.cycle import Policy, decide

__all__ = ["Policy", "decide"]
