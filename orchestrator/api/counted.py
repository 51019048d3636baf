"""What rows of jobs and queues show of GPUs: what limits count of a job at least, by what is published.

Comes in: the published view, jobs. Goes out: thousandths of GPUs. Called by: the routes of jobs, render, render_queues.
Made for one answer, so that nodes are looked through once, and only where some job asks for memory alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.controller.view import JobView, View
from orchestrator.model.cluster import Pool
from orchestrator.model.counted import Has, by_the_file, counted_milli, hangs_on_pool
from orchestrator.model.job import JobSpec, Request, Topology


class Counted:
    """As things stand in one view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._memory: dict[str, int] | None = None

    def milli(self, spec: JobSpec) -> int:
        """Of one job."""
        return counted_milli(self._view.cluster, spec, self._has)

    def of_all(self, jobs: Iterable[JobView]) -> int:
        """Of all of these together, however many: what hangs on the pool is looked up once for each shape."""
        known: dict[tuple[Request, Topology, tuple[str, ...]], int] = {}
        total = 0
        for one in jobs:
            spec = one.spec
            if not hangs_on_pool(spec):
                total += spec.request.total_milli()
                continue
            key = spec.request, spec.topology, spec.needs
            if key not in known:
                known[key] = self.milli(spec)
            total += known[key]
        return total

    def _has(self, pool: Pool) -> Has:
        """What the file says; of memory that it does not say, the largest device that nodes have told of."""
        said = by_the_file(pool)
        if said.memory:
            return said
        if self._memory is None:
            self._memory = _largest(self._view)
        return said._replace(memory=self._memory.get(pool.name, 0))


def _largest(view: View) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in list(view.nodes.values()):
        sizes = (device.memory for device in (node.facts.devices if node.facts is not None else ()))
        found[node.pool] = max(found.get(node.pool, 0), *sizes, 0)
    return found
