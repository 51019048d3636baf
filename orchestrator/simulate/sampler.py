"""Pictures of the cluster at regular times: load, waiting jobs, fragmentation, what each node does.

Comes in: shares taken and freed, jobs that begin and cease to wait, nodes that come and go. Goes out: `Sample`s,
about as many as were asked for, however long the simulation turns out to be: when there are twice as many, every
second one goes. Called by: world, lives, machines (tell it), metrics and pictures (read it).

Devices are counted in thousandths. Fragmentation is the share of free GPU thousandths that no waiting job's shape
could use where they are: by GPU model, whole free devices, cores and memory of each node alone. Topology, labels and
limits are not looked at, so that it says what the placement has broken off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.job import JobSpec, PerNode
from orchestrator.model.need import gangs_of, need_of, share_of
from orchestrator.simulate.trace import Trace

if TYPE_CHECKING:
    from orchestrator.model.attempt import Placement

GPU = 1000  # thousandths
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture. `busy`, `open`: thousandths of GPUs taken, and of nodes that are there; `waiting` jobs by queue;
    `stranded`: free thousandths that no waiting shape could use (None: nothing waits, or nothing is free); `load`: by
    node, per mille of its GPUs taken (-1: it is away)."""

    at_us: int
    busy: int
    open: int
    waiting: dict[str, int]
    waiting_milli: int
    running: int
    free: int
    stranded: int | None
    load: NDArray[np.int16]


class Sampler:
    """Keeps its own account of what is free, so that it looks at nothing of the scheduler's."""

    def __init__(self, cluster: ClusterSpec, trace: Trace, most: int) -> None:
        self.nodes = [node for pool in cluster.pools for node in pool.nodes]
        self.models = [pool.gpu.model if pool.gpu else "" for pool in cluster.pools for _ in pool.nodes]
        self.samples: list[Sample] = []
        # Thousandths of GPUs times microseconds: that were there, and that were held; by pool.
        self.pool_area: dict[str, int] = {}
        self.held_area: dict[str, int] = {}
        self._pools = [pool for pool in cluster.pools for _ in pool.nodes]
        self._at = {node: number for number, node in enumerate(self.nodes)}
        self._gpus = [pool.gpu.count if pool.gpu else 0 for pool in self._pools]
        self._divided = np.array([pool.gpu is not None and pool.gpu.mig for pool in self._pools], dtype=bool)
        self._used = [[0] * count for count in self._gpus]
        self._cores = [pool.cores or 1 << 50 for pool in self._pools]
        self._memory = [pool.memory or 1 << 50 for pool in self._pools]
        self._since: dict[int, int] = {}  # nodes that are there, and since when
        self._busy = 0
        self._running = 0
        self._waiting: dict[int, int] = {}  # by shape
        self._trace = trace
        self._most = max(most, 1)
        self._every_us = _first_interval_us(trace, self._most)
        self._next_us = 0

    # --- what changes ---------------------------------------------------------------------------------------

    def take(self, placements: tuple[Placement, ...]) -> str:
        """A gang's shares are taken; the GPU model that it got (empty: none)."""
        for part in placements:
            self._change(part, 1)
        self._running += 1
        return self.models[self._at[placements[0].node]] if placements[0].slots else ""

    def free(self, part: Placement) -> None:
        """One share is free again."""
        self._change(part, -1)

    def over(self, placements: tuple[Placement, ...], held: int) -> None:
        """One attempt less; it has held so many thousandths of GPUs times microseconds."""
        self._running -= 1
        pool = self._pools[self._at[placements[0].node]].name
        self.held_area[pool] = self.held_area.get(pool, 0) + held

    @property
    def capacity_area(self) -> int:
        """Of all pools."""
        return sum(self.pool_area.values())

    def _change(self, part: Placement, sign: int) -> None:
        node = self._at[part.node]
        used = self._used[node]
        if part.milli:
            for slot, milli in zip(part.slots, part.milli, strict=True):
                used[slot] += sign * milli
            self._busy += sign * sum(part.milli)
        else:
            for slot in part.slots:
                used[slot] += sign * GPU
            self._busy += sign * GPU * len(part.slots)
        self._cores[node] -= sign * part.cores
        self._memory[node] -= sign * part.memory

    def waits(self, shape: int, change: int) -> None:
        """One more job of that shape waits, or one less."""
        self._waiting[shape] = self._waiting.get(shape, 0) + change

    def open(self, node: str, is_open: bool, at_us: int) -> None:
        """The node comes, or is lost."""
        number = self._at[node]
        since_us = self._since.pop(number, None)
        if since_us is not None:
            area, pool = (at_us - since_us) * GPU * self._gpus[number], self._pools[number].name
            self.pool_area[pool] = self.pool_area.get(pool, 0) + area
        if is_open:
            self._since[number] = at_us

    def close(self, at_us: int) -> None:
        """The simulation is over."""
        self.until(at_us + 1)
        for number in list(self._since):
            self.open(self.nodes[number], False, at_us)

    # --- pictures -------------------------------------------------------------------------------------------

    def until(self, at_us: int) -> None:
        """Take the pictures of the times before `at_us`: as it was after the last instant."""
        while self._next_us < at_us:
            self.samples.append(self._sample(self._next_us))
            self._next_us += self._every_us
            if len(self.samples) >= 2 * self._most:
                self.samples = self.samples[::2]
                self._every_us *= 2
                self._next_us = self.samples[-1].at_us + self._every_us

    def _sample(self, at_us: int) -> Sample:
        waiting, milli = self._queued()
        open_now = np.zeros(len(self.nodes), dtype=bool)
        open_now[list(self._since)] = True
        used, there = self._grid()
        gpus = np.array(self._gpus, dtype=np.int64)
        total = np.where(open_now, gpus * GPU, 0)
        taken = used.sum(axis=1)
        free = np.where(open_now, gpus * GPU - taken, 0)
        load = np.where(open_now, taken // np.maximum(gpus, 1), -1).astype(np.int16)
        stranded = self._stranded(used, there, free) if waiting and free.any() else None
        return Sample(
            at_us,
            self._busy,
            int(total.sum()),
            waiting,
            milli,
            self._running,
            int(free.sum()),
            stranded,
            load,
        )

    def _queued(self) -> tuple[dict[str, int], int]:
        """Waiting jobs by queue, and the thousandths of GPUs that they ask for."""
        found: dict[str, int] = {}
        milli = 0
        for shape, count in self._waiting.items():
            if count:
                spec = self._trace.shapes[shape]
                found[spec.queue] = found.get(spec.queue, 0) + count
                milli += count * asked_milli(spec)
        return found, milli

    def _grid(self) -> tuple[Numbers, NDArray[np.bool_]]:
        """Thousandths taken by node and slot, and which slots there are."""
        widest = max(self._gpus, default=0)
        used = np.zeros((len(self.nodes), max(widest, 1)), dtype=np.int64)
        there = np.zeros(used.shape, dtype=bool)
        for number, row in enumerate(self._used):
            used[number, : len(row)] = row
            there[number, : len(row)] = True
        return used, there

    def _stranded(self, used: Numbers, there: NDArray[np.bool_], free: Numbers) -> int:
        """Free thousandths that none of the waiting shapes could use. Of GPUs in MIG mode, whoever waits for instances
        is taken to be able to use all that is free."""
        whole = ((used == 0) & there).sum(axis=1)
        cores, memory = np.array(self._cores, dtype=np.int64), np.array(self._memory, dtype=np.int64)
        usable = np.zeros(len(self.nodes), dtype=np.int64)
        for share, least_cores in self._shares():
            units = _units(share, least_cores, cores, memory)
            if share.mig:
                got = np.where(units > 0, free, 0)
            elif share.gpus:
                got = np.minimum(units, whole // share.gpus) * share.gpus * GPU
            elif share.gpu_milli:
                left = np.where(there, GPU - used, 0)
                got = np.where(units > 0, (left // share.gpu_milli * share.gpu_milli).sum(axis=1), 0)
            else:
                continue
            got = np.where(self._divided == bool(share.mig), got, 0)
            if share.gpu_models:
                got = np.where([model in share.gpu_models for model in self.models], got, 0)
            usable = np.maximum(usable, got)
        return int(np.maximum(free - usable, 0).sum())

    def _shares(self) -> dict[tuple[PerNode, int], None]:
        """What units of the waiting jobs take, each once."""
        found: dict[tuple[PerNode, int], None] = {}
        for shape, count in self._waiting.items():
            if count:
                for gang in gangs_of(self._trace.shapes[shape]):
                    found[share_of(gang), need_of(gang).cores] = None
        return found


def _units(share: PerNode, least_cores: int, cores: Numbers, memory: Numbers) -> Numbers:
    units = np.full(len(cores), 1 << 30, dtype=np.int64)
    if least_cores:
        units = np.minimum(units, cores // least_cores)
    if share.memory:
        units = np.minimum(units, memory // share.memory)
    return np.maximum(units, 0)


def asked_milli(spec: JobSpec) -> int:
    """Thousandths of GPUs that a job asks for in all; an instance counts as an eighth, the smallest that most models
    have, since what a profile is hangs on the pool."""
    return spec.request.total_milli() + spec.request.total_instances() * GPU // 8


def _first_interval_us(trace: Trace, most: int) -> int:
    """A guess: arrivals last as long as that, and a job runs on after the last one."""
    if not len(trace):
        return 1
    span_us = trace.submit_us[-1] + sum(trace.run_us) // len(trace)
    return max(span_us // most, 1)
