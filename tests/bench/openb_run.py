"""Offering pods to a cluster, one at a time, under one placement policy.

Comes in: a trace, a seed, a policy. Goes out: allocated GPU % by arrived GPU %, or its mean under churn. Called by:
openb. The protocol is that of the FGD paper (docs/benchmarks.md); a policy only gives costs of nodes and names devices.

Rows of the arrays are in the order of a seeded permutation of the nodes, so the first of the cheapest rows is the node
of the lowest rank: the tie rule of every policy here.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.ask import DEVICE, Ask
from orchestrator.scheduler.mix import Ints
from orchestrator.scheduler.waste import NO_FIT
from tests.bench.openb_data import NodeRow, Pod, Trace

TARGET = 1.3  # arrived GPU request over the cluster's devices
XS = (100, 130)


@dataclass(slots=True)
class Cluster:
    """The arrays that a policy looks at (orchestrator.scheduler.waste.Arrays), and a log of rows that changed."""

    model: NDArray[np.int16]
    gpus: NDArray[np.int16]
    whole: NDArray[np.int16]
    milli: NDArray[np.int32]
    device_bytes: Ints
    free_cores: Ints
    free_memory: Ints
    rank: NDArray[np.int32]
    log: list[int] = field(default_factory=list)

    def give(self, row: int, ask: Ask, slots: Sequence[int], sign: int = -1) -> None:
        """Take a unit's part of a row (sign -1), or give it back (1)."""
        for slot in slots:
            self.milli[row, slot] += sign * (ask.milli or DEVICE)
        self.whole[row] = np.count_nonzero(self.milli[row] == DEVICE)
        self.free_cores[row] += sign * ask.cores
        self.free_memory[row] += sign * ask.memory
        self.log.append(row)


def cluster(nodes: Sequence[NodeRow], seed: int) -> Cluster:
    """Empty, with its rows in an order drawn from the seed."""
    rows = list(nodes)
    Random(seed).shuffle(rows)
    width = max(node.gpus for node in rows)
    gpus = np.array([node.gpus for node in rows], dtype=np.int16)
    milli = np.where(np.arange(width)[None, :] < gpus[:, None], DEVICE, 0).astype(np.int32)
    return Cluster(
        model=np.array([node.model for node in rows], dtype=np.int16),
        gpus=gpus,
        whole=gpus.copy(),
        milli=milli,
        device_bytes=np.zeros((len(rows), width), dtype=np.int64),
        free_cores=np.array([node.cores for node in rows], dtype=np.int64),
        free_memory=np.array([node.memory for node in rows], dtype=np.int64),
        rank=np.arange(len(rows), dtype=np.int32),
    )


class Policy(Protocol):
    """What decides: the least cost wins, then the lowest rank."""

    def costs(self, cluster: Cluster, ask: Ask, rows: Ints) -> Ints:
        """NO_FIT where it does not fit."""

    def slots(self, cluster: Cluster, ask: Ask, row: int) -> Sequence[int]:
        """The devices on the chosen row."""


class Scored:
    """A policy's costs, kept by ask and brought up to date for the rows that changed since the last look."""

    def __init__(self, policy: Policy, on: Cluster) -> None:
        self.policy, self.cluster = policy, on
        self._known: dict[Ask, tuple[Ints, int]] = {}

    def place(self, ask: Ask) -> tuple[int, Sequence[int]] | None:
        """Take the cheapest row, if the ask fits anywhere."""
        costs = self._costs(ask)
        row = int(costs.argmin())
        if costs[row] >= NO_FIT:
            return None
        slots = self.policy.slots(self.cluster, ask, row)
        self.cluster.give(row, ask, slots)
        return row, slots

    def _costs(self, ask: Ask) -> Ints:
        log = self.cluster.log
        known = self._known.get(ask)
        if known is None:
            costs = self.policy.costs(self.cluster, ask, np.arange(len(self.cluster.rank)))
        else:
            costs, seen = known
            if seen < len(log):
                rows = np.array(sorted(set(log[seen:])), dtype=np.int64)
                costs[rows] = self.policy.costs(self.cluster, ask, rows)
        self._known[ask] = costs, len(log)
        return costs


# --- filling: pods never end ------------------------------------------------------------------------------------------


def arrivals(trace: Trace, seed: int) -> list[Pod]:
    """Shuffled, and brought to 1.3 times the cluster: copies of pods drawn evenly, or pods taken out at random."""
    draw = Random(seed)
    pods = list(trace.pods)
    draw.shuffle(pods)
    target = int(trace.milli * TARGET)
    total = sum(pod.ask.device_milli for pod in pods)
    while total > target:
        total -= pods.pop(draw.randrange(len(pods))).ask.device_milli
    while True:
        pod = trace.pods[draw.randrange(len(trace.pods))]
        each = pod.ask.milli or (DEVICE if pod.ask.gpus else 0)
        if total + each > target:  # the authors' test leaves out the number of devices
            return pods
        pods.append(pod)
        total += pod.ask.device_milli


def fill(trace: Trace, pods: Sequence[Pod], policy: Policy, seed: int) -> dict[int, float]:
    """Mean allocated GPU % over the arrivals at each of XS."""
    scored = Scored(policy, cluster(trace.nodes, seed))
    arrived = allocated = 0
    seen: dict[int, list[int]] = {x: [] for x in XS}
    for pod in pods:
        arrived += pod.ask.device_milli
        if scored.place(pod.ask):
            allocated += pod.ask.device_milli
        x = round(100 * arrived / trace.milli)
        if x in seen:
            seen[x].append(allocated)
    return {x: 100 * sum(values) / len(values) / trace.milli for x, values in seen.items() if values}


# --- churn: pods end --------------------------------------------------------------------------------------------------


def churn(trace: Trace, pods: Sequence[Pod], policy: Policy, seed: int, load: float, total: int) -> float:
    """Mean allocated GPU % over the second half of `total` arrivals; lifetimes are exponential, counted in arrivals,
    such that the offered GPU load is `load` of the cluster. A pod that does not fit is lost."""
    draw = Random(seed)
    scored = Scored(policy, cluster(trace.nodes, seed))
    each = sum(pod.ask.device_milli for pod in pods) / len(pods)
    mean = load * trace.milli / each
    ends: list[tuple[float, int, int, Ask, Sequence[int]]] = []
    allocated = area = 0
    for number in range(total):
        while ends and ends[0][0] <= number:
            _, _, row, ask, slots = heapq.heappop(ends)
            scored.cluster.give(row, ask, slots, 1)
            allocated -= ask.device_milli
        ask = pods[number % len(pods)].ask
        life = draw.expovariate(1 / mean)
        placed = scored.place(ask)
        if placed:
            heapq.heappush(ends, (number + life, number, placed[0], ask, placed[1]))
            allocated += ask.device_milli
        if number >= total // 2:
            area += allocated
    return 100 * area / (total - total // 2) / trace.milli
