"""Builders for tests of placement: a few nodes as arrays, and hypothesis strategies for nodes, asks and mixes.

Called by: test_mix, test_waste, test_kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from orchestrator.ledger.ask import DEVICE, Ask
from orchestrator.scheduler.mix import Ints, Kind, Narrow
from orchestrator.scheduler.presets import FILLING, STANDARD, Preset

GIB = 1 << 30
DEVICE_BYTES = 80 * GIB


@dataclass(frozen=True, slots=True)
class Node:
    """What is free of one node; `of` is what it has in all where that matters."""

    milli: tuple[int, ...] = (DEVICE,) * 4
    cores: int = 64
    memory: int = 512 * GIB
    model: int = 0
    device_bytes: tuple[int, ...] = ()  # empty: as much of each as is free in milli

    @property
    def kind(self) -> Kind:
        """As if it were empty."""
        return Kind(self.model, len(self.milli), max(self.cores, 64), max(self.memory, 512 * GIB))


@dataclass(slots=True)
class Nodes:
    """Arrays as waste wants them; the rank is the order of the list unless it is given."""

    nodes: Sequence[Node]
    ranks: Sequence[int] = ()
    width: int = 8
    model: np.ndarray = field(init=False)
    gpus: np.ndarray = field(init=False)
    whole: np.ndarray = field(init=False)
    milli: Narrow = field(init=False)
    device_bytes: Ints = field(init=False)
    free_cores: Ints = field(init=False)
    free_memory: Ints = field(init=False)
    rank: Narrow = field(init=False)
    open: NDArray[np.bool_] = field(init=False)
    touched: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.model = np.array([node.model for node in self.nodes], dtype=np.int16)
        self.gpus = np.array([len(node.milli) for node in self.nodes], dtype=np.int16)
        self.milli = self._wide([node.milli for node in self.nodes], np.int32)
        self.whole = (self.milli == DEVICE).sum(axis=1).astype(np.int16)
        has = [
            node.device_bytes or tuple(free * DEVICE_BYTES // DEVICE for free in node.milli)
            for node in self.nodes
        ]
        self.device_bytes = self._wide(has, np.int64)
        self.free_cores = np.array([node.cores for node in self.nodes], dtype=np.int64)
        self.free_memory = np.array([node.memory for node in self.nodes], dtype=np.int64)
        self.rank = np.array(self.ranks or range(len(self.nodes)), dtype=np.int32)
        self.open = np.ones(len(self.nodes), bool)
        self.touched = np.zeros(len(self.nodes), np.int64)

    def _wide(self, rows: Sequence[tuple[int, ...]], kind: type[np.generic]) -> np.ndarray:
        return np.array([[*row, *(0,) * (self.width - len(row))] for row in rows], dtype=kind)


class Scene(NamedTuple):
    """Nodes, a mix and an ask, as a property draws them."""

    nodes: list[Node]
    ranks: list[int]
    mix: dict[Ask, int]
    ask: Ask
    preset: Preset


FREE = st.one_of(st.just(0), st.just(DEVICE), st.integers(0, DEVICE))
MODELS = st.lists(st.integers(0, 2), max_size=2, unique=True).map(lambda found: tuple(sorted(found)))
WEIGHTS = st.integers(0, 2000)
PRESETS = st.one_of(
    st.just(FILLING),
    st.just(STANDARD),
    st.builds(Preset, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS),
)


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    """Whole devices, a share, or neither."""
    sort = draw(st.sampled_from(("whole", "share", "none")))
    return Ask(
        gpus=draw(st.integers(1, 8)) if sort == "whole" else 0,
        milli=draw(st.integers(1, DEVICE - 1)) if sort == "share" else 0,
        device_bytes=draw(st.sampled_from((0, 0, 20 * GIB, 70 * GIB))) if sort != "none" else 0,
        cores=draw(st.integers(0, 40)),
        memory=draw(st.integers(0, 200)) * GIB,
        models=draw(MODELS) if sort != "none" else (),
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """With or without devices, in any state."""
    milli = tuple(draw(st.lists(FREE, max_size=8)))
    return Node(
        milli,
        cores=draw(st.integers(0, 128)),
        memory=draw(st.integers(0, 1024)) * GIB,
        model=draw(st.integers(0, 2)) if milli else -1,
    )


def mixes(largest: int = 8) -> st.SearchStrategy[dict[Ask, int]]:
    """Shapes with weights; none at all, too."""
    return st.dictionaries(
        asks().map(lambda ask: ask._replace(device_bytes=0)), st.integers(1, 1000), max_size=largest
    )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A few nodes, in any order of ranks."""
    found = draw(st.lists(nodes(), min_size=1, max_size=6))
    return Scene(found, draw(st.permutations(range(len(found)))), draw(mixes()), draw(asks()), draw(PRESETS))
