"""Which code scores the nodes: compiled where numba is installed (the extra `fast`), numpy otherwise.

Comes in: whether compiled code is wanted. Goes out: a function with the signature of `waste.costs`. Called by: whoever
starts a scheduler, once. Both decide alike; compiled code is faster, and takes 0.3 s to load (seconds, the first time
on a machine) and about 100 MB of memory, so nothing of numba is imported before it is asked for.
"""

from __future__ import annotations

from orchestrator.scheduler import waste
from orchestrator.scheduler.waste import Costs, Renew


def best(compiled: bool = True) -> Costs:
    """The fastest there is, ready to run; numpy's if `compiled` is false or numba is not installed."""
    if not compiled:
        return waste.costs
    try:
        from orchestrator.scheduler import compiled as code
    except ImportError:
        return waste.costs
    return code.costs


def renewing(compiled: bool = True) -> Renew:
    """The same for `waste.renew`."""
    if best(compiled) is waste.costs:
        return waste.renew
    from orchestrator.scheduler import compiled as code

    return code.renew


def name(costs: Costs) -> str:
    """`numpy` or `compiled`, for people."""
    return "numpy" if costs is waste.costs else "compiled"
