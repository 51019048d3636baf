"""What waiting jobs ask of a node, and how much of what is free there is of no use to any of them.

Comes in: the published view. Goes out: `Asked`. Called by: render_cluster, for GPUs.

A GPU is *stranded* when no waiting job could have it where it is, for want of cores, memory or further free GPUs beside
it. Where nobody waits, nothing is stranded. What is asked for is looked at once for each kind of need.
"""

from __future__ import annotations

from orchestrator.controller.view import NodeView, View
from orchestrator.ledger.capacity import WHOLE
from orchestrator.model.attempt import JobState
from orchestrator.model.job import PerNode
from orchestrator.model.need import Need, gangs_of, need_of, pools_for, share_of

MOST_JOBS = 2_000  # waiting jobs that are looked at, so that an answer with a long queue stays quick


class Asked:
    """The different needs of the waiting jobs, by pool that suits them."""

    def __init__(self, view: View) -> None:
        self._needs: dict[str, list[Need]] = {}
        waiting = [one for one in list(view.jobs.values()) if one.state is JobState.WAITING][:MOST_JOBS]
        seen: set[tuple[Need, PerNode, tuple[str, ...], str]] = set()
        for one in waiting if view.cluster is not None else ():
            for gang in gangs_of(one.spec):
                need = need_of(gang)
                key = (need, share_of(gang), gang.needs, gang.topology.required)
                if key in seen or view.cluster is None:
                    continue
                seen.add(key)
                for pool in pools_for(view.cluster, gang):
                    self._needs.setdefault(pool.name, []).append(need)

    def stranded(self, node: NodeView, free: int) -> int:
        """Of the free GPUs of an open node, those that no waiting job could have."""
        needs = self._needs.get(node.pool)
        if not needs or not free:
            return 0
        used = 0
        for need in needs:
            if need.mig:
                return 0  # of divided GPUs, free ones and parts of others are of use alike
            units = need.units_on(free, node.free_cores, node.free_memory)
            used = max(used, _gpus(need, units))
            if used >= free:
                return 0
        return free - used


def _gpus(need: Need, units: int) -> int:
    """Devices that so many units take, shares of one device side by side."""
    if need.gpus:
        return units * need.gpus
    if not need.shares or not units:
        return 0
    each = max(1, WHOLE // max(need.milli, 1))
    return -(-units // each)
