"""A simulation in words: one column a policy, one line a figure.

Comes in: simulations that are over, as `simulate.report.Run`s. Goes out: text. Called by: simulate_cmd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.cli.tables import Cell, Head, render
from orchestrator.cli.text import span

Figure = tuple[str, Callable[[Any], str]]  # its name, and how it reads in a Summary


def words(runs: list[Any]) -> str:
    """The tables of all policies side by side."""
    heads = [Head("FIGURE"), *(Head(run.name, right=True) for run in runs)]
    lines = render(
        heads, [[Cell(name), *(Cell(show(run.summary)) for run in runs)] for name, show in FIGURES]
    )
    for title, pick in (("QUEUE", lambda one: one.queues), ("SIZE", lambda one: one.sizes)):
        lines += ["", *_groups(title, runs, pick)]
    for run in runs:
        if run.summary.reasons:
            counts = ", ".join(f"{code} ({count})" for code, count in run.summary.reasons.items())
            lines += ["", f"refused or waiting, {run.name}: {counts}"]
    left_out = dict.fromkeys(words for run in runs for words in run.summary.left_out)
    if left_out:
        lines += ["", *(f"left out: {words}" for words in left_out)]
    return "\n".join(lines)


def _groups(title: str, runs: list[Any], pick: Callable[[Any], Any]) -> list[str]:
    """One line for each queue or size and policy."""
    heads = [Head(title), Head("POLICY")]
    heads += [
        Head(name, right=True) for name in ("JOBS", "WAIT MEAN", "P50", "P95", "P99", "COMPLETION", "P95")
    ]
    rows = []
    for number, group in enumerate(pick(runs[0].summary)):
        for run in runs:
            found = pick(run.summary)[number]
            wait, over = found.wait, found.completion
            cells = [
                group.name,
                run.name,
                str(wait.jobs),
                *map(_time, (wait.mean, wait.p50, wait.p95, wait.p99)),
            ]
            rows.append([Cell(text) for text in (*cells, _time(over.mean), _time(over.p95))])
    return render(heads, rows)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return span(seconds) if seconds >= 60 else f"{seconds:.1f}s"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


FIGURES: tuple[Figure, ...] = (
    ("jobs that succeeded", lambda one: str(one.states.get("succeeded", 0))),
    ("failed", lambda one: str(one.states.get("failed", 0))),
    ("refused", lambda one: str(one.states.get("refused", 0))),
    ("still waiting", lambda one: str(one.states.get("waiting", 0))),
    ("still running", lambda one: str(one.states.get("running", 0))),
    ("wait, mean", lambda one: _time(one.wait.mean)),
    ("wait, p50", lambda one: _time(one.wait.p50)),
    ("wait, p95", lambda one: _time(one.wait.p95)),
    ("wait, p99", lambda one: _time(one.wait.p99)),
    ("completion, mean", lambda one: _time(one.completion.mean)),
    ("completion, p95", lambda one: _time(one.completion.p95)),
    ("it lasted", lambda one: _time(one.lasted_s)),
    ("GPUs held", lambda one: _share(one.utilisation)),
    ("free GPUs that no waiting job could use", lambda one: _share(one.fragmentation)),
    ("fairness between queues (Jain)", lambda one: _number(one.fairness, ".3f")),
    ("GPU-hours held", lambda one: _number(one.held_hours, ",.1f")),
    ("GPU-hours lost", lambda one: _number(one.lost_hours, ",.1f")),
    ("kWh of GPUs", lambda one: _number(one.kwh, ",.1f")),
    ("dollars", lambda one: _number(one.dollars, ",.2f")),
)
