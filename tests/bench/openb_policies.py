"""The policies that `make bench-openb` compares: Gangline's own through the scheduler's functions, FGD and BestFit.

Comes in: typical shapes, a cluster, an ask. Goes out: costs of nodes and devices. Called by: openb. FGD and BestFit
have the authors' integer scores of 0 to 100; a cost here is 100 less the score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.ask import DEVICE, Ask
from orchestrator.scheduler import waste
from orchestrator.scheduler.mix import Ints, Kind, Tables, tables
from orchestrator.scheduler.presets import Preset
from orchestrator.scheduler.waste import NO_FIT, Costs
from tests.bench.openb_data import NodeRow
from tests.bench.openb_run import Cluster

MAX_CORES, MAX_MILLI = 128_000, 8_000  # MaxSpecCpu, MaxSpecGpu of the authors' simulator
Floats = NDArray[np.float64]


def kinds(nodes: Sequence[NodeRow]) -> list[Kind]:
    """How many nodes there are of each kind."""
    counted = Counter((node.model, node.gpus, node.cores, node.memory) for node in nodes)
    return [Kind(*kind, nodes=count) for kind, count in sorted(counted.items())]


class Waste:
    """Gangline's policy under a preset."""

    def __init__(
        self, mix: Mapping[Ask, int], nodes: Sequence[NodeRow], preset: Preset, score: Costs = waste.costs
    ) -> None:
        self.tables: Tables = tables(mix, kinds(nodes), preset)
        self._score = score

    def costs(self, cluster: Cluster, ask: Ask, rows: Ints) -> Ints:
        """Micro-GPU."""
        return self._score(self.tables, cluster, ask, rows)

    def slots(self, cluster: Cluster, ask: Ask, row: int) -> Sequence[int]:
        """By the least cost."""
        return waste.slots(self.tables, cluster, ask, row)


def _fits(cluster: Cluster, ask: Ask, rows: Ints) -> NDArray[np.bool_]:
    fits = (cluster.free_cores[rows] >= ask.cores) & (cluster.free_memory[rows] >= ask.memory)
    if ask.models:
        fits &= np.isin(cluster.model[rows], ask.models)
    if ask.gpus:
        fits &= cluster.whole[rows] >= ask.gpus
    if ask.milli:
        fits &= (cluster.milli[rows] >= ask.milli).any(axis=1)
    return fits


def _whole_slots(cluster: Cluster, ask: Ask, row: int) -> Sequence[int]:
    return [int(slot) for slot in np.flatnonzero(cluster.milli[row] == DEVICE)[: ask.gpus]]


class BestFit:
    """What is left of cores and devices, half and half.

    The authors stretch the scores to 0..100 over the nodes that fit; that keeps their order, so it is left out.
    """

    def costs(self, cluster: Cluster, ask: Ask, rows: Ints) -> Ints:
        """100 less the score."""
        cores = (cluster.free_cores[rows] - ask.cores) / MAX_CORES
        milli = (cluster.milli[rows].sum(axis=1) - ask.device_milli) / MAX_MILLI
        score = ((1.0 - (cores * 0.5 + milli * 0.5)) * 100).astype(np.int64)
        result: Ints = np.where(_fits(cluster, ask, rows), 100 - score, NO_FIT)
        return result

    def slots(self, cluster: Cluster, ask: Ask, row: int) -> Sequence[int]:
        """The fullest device that takes a share."""
        if not ask.milli:
            return _whole_slots(cluster, ask, row)
        free = cluster.milli[row]
        able = np.flatnonzero(free >= ask.milli)
        return [int(able[free[able].argmin()])]


class Fgd:
    """Fragmentation gradient descent: how much less the typical shapes can use of a node's idle devices."""

    def __init__(self, mix: Mapping[Ask, int], nodes: Sequence[NodeRow]) -> None:
        models, width = 1 + max(node.model for node in nodes), max(node.gpus for node in nodes)
        self._bins = np.array(sorted({ask.cores for ask in mix if ask.device_milli}), dtype=np.int64)
        shape = (models, len(self._bins) + 1)
        share, many = np.zeros((*shape, DEVICE + 1)), np.zeros((*shape, width + 1))
        total = sum(mix.values())
        for ask, count in mix.items():
            if not ask.device_milli:
                continue
            for model in ask.models or range(models):
                at = int(np.searchsorted(self._bins, ask.cores)) + 1
                if ask.gpus > 1:
                    many[model, at:, ask.gpus :] += count / total
                else:
                    share[model, at:, ask.device_milli :] += count / total
        self._share = share * np.arange(DEVICE + 1)
        self._many = many * np.arange(width + 1) * DEVICE

    def _lost(self, model: Ints, cores: Ints, milli: Ints) -> Floats:
        """Idle milli that the mix cannot use, of nodes in these states; the last axis of `milli` are the devices."""
        at = np.searchsorted(self._bins, cores, side="right")
        usable = self._share[model[..., None], at[..., None], milli].sum(axis=-1)
        usable += self._many[model, at, (milli == DEVICE).sum(axis=-1)]
        lost: Floats = milli.sum(axis=-1) - usable
        return lost

    def _scores(self, cluster: Cluster, ask: Ask, rows: Ints) -> Ints:
        """[K, D] for a share of a device, -1 where it does not fit; [K, 1] for anything else."""
        model = cluster.model[rows].astype(np.int64)
        milli = cluster.milli[rows].astype(np.int64)
        cores = cluster.free_cores[rows]
        before = self._lost(model, cores, milli)
        left = (cores - ask.cores)[:, None]
        if ask.milli:
            width = milli.shape[1]
            after = np.repeat(milli[:, None, :], width, axis=1)
            after[:, np.arange(width), np.arange(width)] -= ask.milli
            able = milli >= ask.milli
        else:
            after = self._without(milli, ask.gpus)[:, None, :]
            able = np.ones((len(rows), 1), dtype=bool)
        lost = self._lost(
            np.broadcast_to(model[:, None], able.shape),
            np.broadcast_to(left, able.shape),
            np.maximum(after, 0),
        )
        score = (100 / (1 + np.exp(-(before[:, None] - lost) / 1000))).astype(np.int64)
        result: Ints = np.where(able, score, -1)
        return result

    @staticmethod
    def _without(milli: Ints, gpus: int) -> Ints:
        """The lowest whole devices taken."""
        whole = milli == DEVICE
        taken: Ints = np.where(whole & (whole.cumsum(axis=1) <= gpus), 0, milli)
        return taken

    def costs(self, cluster: Cluster, ask: Ask, rows: Ints) -> Ints:
        """100 less the score of the best device."""
        result: Ints = np.full(len(rows), NO_FIT, dtype=np.int64)
        able = np.flatnonzero(_fits(cluster, ask, rows))
        if len(able):
            result[able] = 100 - self._scores(cluster, ask, rows[able]).max(axis=1)
        return result

    def slots(self, cluster: Cluster, ask: Ask, row: int) -> Sequence[int]:
        """For a share the device of the best score, the lowest of several."""
        if not ask.milli:
            return _whole_slots(cluster, ask, row)
        return [int(self._scores(cluster, ask, np.array([row]))[0].argmax())]
