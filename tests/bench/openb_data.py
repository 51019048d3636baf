"""The openb traces as asks: nodes, pods, typical shapes, and what the authors of FGD saw on them.

Comes in: the folder that GANGLINE_DATA names, with fgd-openb/ and fgd-results/ (CSV, plain or .gz). Goes out: `Trace`.
Called by: openb. Cores are milli-cores here, in nodes and asks alike.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orchestrator.ledger.ask import DEVICE, Ask
from tests.bench.common import Failed

TRACES = [
    *("default", "cpu050", "cpu100", "cpu200", "cpu250"),
    *("gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
]
MIB = 1 << 20
FGD = "06-FGD"
BEST_FIT = "05-BestFit"


class NodeRow(NamedTuple):
    """A node of the trace."""

    name: str
    model: int
    gpus: int
    cores: int
    memory: int


class Pod(NamedTuple):
    """A pod of the trace. Its shape is what typical shapes are counted by, so it leaves out memory."""

    name: str
    ask: Ask

    @property
    def shape(self) -> Ask:
        """The ask without memory."""
        return self.ask._replace(memory=0)


@dataclass(frozen=True, slots=True)
class Trace:
    """One variant of the trace; pods are sorted by name."""

    name: str
    nodes: tuple[NodeRow, ...]
    pods: tuple[Pod, ...]

    @property
    def milli(self) -> int:
        """All devices of the cluster."""
        return sum(node.gpus for node in self.nodes) * DEVICE


def load(data: Path, name: str) -> Trace:
    """A trace by its short name, such as `gpuspec33`."""
    rows = list(_rows(data / "fgd-openb" / "openb_node_list_gpu_node.csv"))
    numbers = {model: number for number, model in enumerate(sorted({row["model"] for row in rows}))}
    nodes = tuple(
        NodeRow(
            row["sn"],
            numbers[row["model"]],
            int(row["gpu"]),
            int(row["cpu_milli"]),
            int(row["memory_mib"]) * MIB,
        )
        for row in rows
    )
    pods = [_pod(row, numbers) for row in _rows(data / "fgd-openb" / f"openb_pod_list_{name}.csv")]
    return Trace(name, nodes, tuple(sorted(pods, key=lambda pod: pod.name)))


def _pod(row: dict[str, str], numbers: dict[str, int]) -> Pod:
    count, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    named = sorted({numbers[word] for word in (row.get("gpu_spec") or "").split("|") if word})
    ask = Ask(
        gpus=count if milli == DEVICE else 0,
        milli=milli if count and milli < DEVICE else 0,
        cores=int(row["cpu_milli"]),
        memory=int(row["memory_mib"]) * MIB,
        models=tuple(named) if count else (),
    )
    return Pod(row["name"], ask)


def shapes(trace: Trace) -> Counter[Ask]:
    """How often each shape is asked for."""
    return Counter(pod.shape for pod in trace.pods)


def published(data: Path, policy: str) -> dict[tuple[str, int, int], float]:
    """Allocated GPU % of the authors' own runs by (trace, seed, x)."""
    found: dict[tuple[str, int, int], float] = {}
    for row in _rows(data / "fgd-results" / "analysis_allo_discrete.csv"):
        if row["sc_policy"] == policy:
            name = row["workload"].removeprefix("openb_pod_list_")
            for x in (100, 130):
                if row.get(str(x)):
                    found[name, int(row["seed"]), x] = float(row[str(x)])
    return found


def _rows(path: Path) -> Iterator[dict[str, str]]:
    packed = path.with_name(path.name + ".gz")
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as plain:
            yield from csv.DictReader(plain)
    elif packed.is_file():
        with gzip.open(packed, "rt", encoding="utf-8", newline="") as text:
            yield from csv.DictReader(text)
    else:
        raise Failed(f"{path} is missing, plain and as .gz")
