"""The pictures of the page as one PNG, by matplotlib (extra `plot`).

Comes in: `Run`s. Goes out: the bytes of a PNG. Called by: cli/simulate_cmd, which says what is missing where
matplotlib is.
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl

from orchestrator.simulate import pictures
from orchestrator.simulate.page import COLOURS
from orchestrator.simulate.pictures import Axis, Series
from orchestrator.simulate.report import Run

mpl.use("Agg")

from matplotlib.figure import Figure

INCHES, DPI = 11, 110
GONE = "#d98c7a"


def plot(runs: list[Run]) -> bytes:
    """Load, queue, waits by size and a map for each policy, one below the other."""
    rows = 3 + len(runs)
    figure = Figure(figsize=(INCHES, 2.6 * rows), dpi=DPI, layout="constrained")
    axes = figure.subplots(rows, 1)
    across = pictures.time_axis(max((run.summary.lasted_s for run in runs), default=0.0))
    _over_time(axes[0], across, "GPUs held", [pictures.load(run) for run in runs])
    for number, run in enumerate(runs):
        there = pictures.there(run)
        axes[0].step(there.at_s, there.values, where="post", color=COLOURS[number % 2], lw=0.8, ls="--")
    _over_time(axes[1], across, "jobs that wait", [pictures.queued(run) for run in runs])
    if len(runs) > 1:
        axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(runs), frameon=False)
    _waits(axes[2], runs)
    for axis, run in zip(axes[3:], runs, strict=True):
        _map(axis, across, run)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _over_time(axis: Any, across: Axis, title: str, series: list[Series]) -> None:
    for number, one in enumerate(series):
        axis.step(one.at_s, one.values, where="post", color=COLOURS[number % 2], lw=1.4, label=one.name)
    axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))  # also where nothing ever happens
    _time_ticks(axis, across)
    axis.set_title(title, loc="left", fontsize=11)
    axis.grid(axis="y", color="#e4e9ee")


def _time_ticks(axis: Any, across: Axis) -> None:
    axis.set_xlim(0, across.most)
    axis.set_xticks(across.ticks, across.labels)
    axis.spines[["top", "right"]].set_visible(False)


def _waits(axis: Any, runs: list[Run]) -> None:
    sizes = [one.size for one in pictures.waits(runs[0])]
    for number, run in enumerate(runs):
        shift = (number - (len(runs) - 1) / 2) * 0.3
        for row, one in enumerate(pictures.waits(run)):
            low, high = max(one.p50, 1.0), max(one.p95, 1.0)
            axis.plot([low, high], [row + shift] * 2, color=COLOURS[number % 2], lw=2.5, alpha=0.5)
            axis.plot([low], [row + shift], "o", color=COLOURS[number % 2])
            axis.plot([high], [row + shift], "o", color=COLOURS[number % 2], mfc="white")
    axis.set_yticks(range(len(sizes)), sizes)
    axis.invert_yaxis()
    log = pictures.log_axis(max((one.p95 for run in runs for one in pictures.waits(run)), default=0.0))
    axis.set_xscale("log")
    axis.set_xlim(0.9, log.most * 1.1)
    axis.set_xticks(log.ticks, log.labels)
    axis.minorticks_off()
    axis.set_title("wait by size: p50 (full) to p95 (ring)", loc="left", fontsize=11)
    axis.grid(axis="x", color="#e4e9ee")
    axis.spines[["top", "right"]].set_visible(False)


def _map(axis: Any, across: Axis, run: Run) -> None:
    grid = pictures.gpu_map(run)
    if grid.size:
        lasted_s = run.world.sampler.samples[-1].at_us / 1e6
        colours = mpl.colormaps["Blues"].with_extremes(under=GONE)
        axis.imshow(
            grid,
            aspect="auto",
            interpolation="nearest",
            cmap=colours,
            vmin=0,
            vmax=1000,
            extent=(0, lasted_s, len(grid), 0),
        )
    _time_ticks(axis, across)
    axis.set_yticks([])
    axis.set_title(f"GPUs held by node: {run.name}", loc="left", fontsize=11)
