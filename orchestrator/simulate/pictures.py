"""What the pictures of a simulation show, as numbers: the same for the page and for the PNG.

Comes in: `Run`s. Goes out: series over time, waits by size, maps of nodes over time, axes with round ticks. Called
by: page, charts, plot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.simulate.report import Run
from orchestrator.simulate.sampler import GPU

MOST_ROWS = 160  # of a map; more nodes than that share rows
AWAY = -1
UNITS = ((1, "s"), (60, "min"), (3600, "h"), (86_400, "d"))


@dataclass(frozen=True, slots=True)
class Series:
    """Values over time, seconds since the trace's zero; each holds until the next."""

    name: str
    at_s: list[float]
    values: list[float]


@dataclass(frozen=True, slots=True)
class Axis:
    """From 0 (or `least`) to `most`, with ticks and their labels."""

    most: float
    ticks: list[float]
    labels: list[str]
    unit: str = ""
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds of one size under one policy: half of the jobs waited no longer than `p50`, 95 % no longer than
    `p95`."""

    size: str
    jobs: int
    mean: float
    p50: float
    p95: float


def load(run: Run) -> Series:
    """GPUs held."""
    samples = run.world.sampler.samples
    return Series(run.name, _times(run), [one.busy / GPU for one in samples])


def there(run: Run) -> Series:
    """GPUs on nodes that are there."""
    return Series(run.name, _times(run), [one.open / GPU for one in run.world.sampler.samples])


def queued(run: Run) -> Series:
    """Jobs that wait."""
    samples = run.world.sampler.samples
    return Series(run.name, _times(run), [float(sum(one.waiting.values())) for one in samples])


def _times(run: Run) -> list[float]:
    return [one.at_us / 1e6 for one in run.world.sampler.samples]


def waits(run: Run) -> list[Waits]:
    """By size, the smallest first."""
    return [
        Waits(one.name, one.wait.jobs, one.wait.mean or 0.0, one.wait.p50 or 0.0, one.wait.p95 or 0.0)
        for one in run.summary.sizes
    ]


def gpu_map(run: Run) -> NDArray[np.int16]:
    """Rows of nodes in the order of the file, columns of pictures: per mille of their GPUs held, AWAY where all nodes
    of the row are away. Nodes without GPUs are left out."""
    sampler = run.world.sampler
    with_gpus = [number for number, model in enumerate(sampler.models) if model]
    if not with_gpus or not sampler.samples:
        return np.zeros((0, 0), dtype=np.int16)
    grid = np.stack([one.load for one in sampler.samples], axis=1)[with_gpus].astype(float)
    grid[grid < 0] = np.nan
    rows = min(len(with_gpus), MOST_ROWS)
    found = np.full((rows, grid.shape[1]), AWAY, dtype=np.int16)
    for row, members in enumerate(np.array_split(grid, rows)):
        seen = ~np.isnan(members)
        count = seen.sum(axis=0)
        total = np.where(seen, members, 0.0).sum(axis=0)
        found[row] = np.where(count > 0, total / np.maximum(count, 1), AWAY).astype(np.int16)
    return found


# --- axes -----------------------------------------------------------------------------------------------------------


def time_axis(most_s: float) -> Axis:
    """Time in a unit that suits its length."""
    size, unit = next(((size, unit) for size, unit in reversed(UNITS) if most_s >= 2 * size), UNITS[0])
    step = _step(most_s / size)
    ticks = [number * step * size for number in range(int(most_s / size / step) + 1)]
    labels = [f"{_label(tick / size)} {unit}" if tick else "0" for tick in ticks]
    return Axis(max(most_s, 1e-9), ticks, labels, unit)


def count_axis(most: float) -> Axis:
    """Counts from 0 to a round number."""
    step = max(_step(most), 1.0)
    top = max(math.ceil(most / step - 1e-9), 1) * step
    ticks = [number * step for number in range(round(top / step) + 1)]
    return Axis(top, ticks, [_label(tick) for tick in ticks])


LOG_TICKS = ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"), (86_400, "1 d"),
             (864_000, "10 d"), (8_640_000, "100 d"))  # fmt: skip


def log_axis(most_s: float) -> Axis:
    """Waits from a second on; shorter ones stand at its beginning."""
    top = next((value for value, _ in LOG_TICKS if value >= most_s), max(most_s, 1.0))
    shown = [(float(value), label) for value, label in LOG_TICKS if value <= top]
    top = max(float(top), 10.0)
    return Axis(top, [value for value, _ in shown], [label for _, label in shown], least=1.0)


def _step(most: float) -> float:
    """A round step that gives four to nine ticks."""
    if most <= 0:
        return 1.0
    rough = most / 6
    power = 10 ** math.floor(math.log10(rough))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough))


def _label(value: float) -> str:
    return f"{value:,.10g}"
