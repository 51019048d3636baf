"""A simulation as one document: the figures, every job, the commitment at every limit over time.

Comes in: `Run`s, one a policy. Goes out: plain values for JSON, the same for the same inputs to the last byte. Called
by: cli/simulate_cmd, pictures.

Times are seconds since the trace's zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.ledger.hours import HOUR, HOURS
from orchestrator.ledger.spending import USD
from orchestrator.simulate.book import NEVER
from orchestrator.simulate.metrics import Group, Spread, Summary, percentile, summary
from orchestrator.simulate.sampler import GPU
from orchestrator.simulate.world import World


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's simulation: the policy's name, the world, its figures."""

    name: str
    world: World
    summary: Summary


def finished(name: str, world: World) -> Run:
    """A world that has run, with its figures."""
    return Run(name, world, summary(world))


def document(runs: list[Run]) -> dict[str, Any]:
    """Everything, of all policies."""
    return {"cluster": runs[0].world.cluster.name, "items": [one_run(run) for run in runs]}


def one_run(run: Run) -> dict[str, Any]:
    """Everything of one policy."""
    commitment = run.world.commitment
    exact_until_us = commitment.exact_until_us
    return {
        "policy": run.name,
        "summary": figures(run.summary),
        "limits": _limits(run.world),
        "limits_exact_until_s": None if exact_until_us is None else exact_until_us / 1e6,
        "jobs": _jobs(run.world),
    }


def figures(found: Summary) -> dict[str, Any]:
    """The figures alone."""
    return {
        "jobs": found.states,
        "reasons": found.reasons,
        "wait_s": _spread(found.wait),
        "completion_s": _spread(found.completion),
        "by_queue": [_group(one) for one in found.queues],
        "by_size": [_group(one) for one in found.sizes],
        "lasted_s": found.lasted_s,
        "utilisation": _rounded(found.utilisation),
        "fragmentation": _rounded(found.fragmentation),
        "fairness": _rounded(found.fairness),
        "gpu_hours": {
            "capacity": _rounded(found.capacity_hours),
            "held": _rounded(found.held_hours),
            "ran": _rounded(found.ran_hours),
            "lost": _rounded(found.lost_hours),
        },
        **({"dollars": _rounded(found.dollars)} if found.dollars is not None else {}),
        **({"kwh": _rounded(found.kwh)} if found.kwh is not None else {}),
        "left_out": list(found.left_out),
        "passes": found.passes,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _spread(found: Spread) -> dict[str, Any]:
    if not found.jobs:
        return {"jobs": 0}
    return {
        "jobs": found.jobs,
        "mean": _rounded(found.mean),
        "p50": found.p50,
        "p95": found.p95,
        "p99": found.p99,
        "max": found.most,
    }


def _group(group: Group) -> dict[str, Any]:
    more = {"gpu_hours": _rounded(group.gpu_hours)} if group.gpu_hours is not None else {}
    return {
        "name": group.name,
        "wait_s": _spread(group.wait),
        "completion_s": _spread(group.completion),
        **more,
    }


def _limits(world: World) -> list[dict[str, Any]]:
    """The use of each limit as steps: from a time on, so much. A `ceiling` of null: it is only counted."""
    return [
        {
            "scope": scope,
            "dimension": dimension,
            "ceiling": None if steps.ceiling is None else amount(dimension, steps.ceiling),
            "steps": [
                [at_us / 1e6, amount(dimension, used)]
                for at_us, used in zip(steps.at_us, steps.used, strict=True)
            ],
        }
        for (scope, dimension), steps in world.commitment.limits.items()
    ]


def amount(dimension: str, value: int) -> float:
    """In GPUs, GPU-hours, dollars an hour, watts or jobs; the tree has smaller units of the first three."""
    unit = {USD: 1_000_000, HOURS: HOUR}.get(dimension, GPU if dimension.startswith("gpus") else 1)
    return value // unit if value % unit == 0 else value / unit


def _jobs(world: World) -> list[dict[str, Any]]:
    book, trace = world.book, world.trace
    return [
        {
            "job": trace.name(job),
            "queue": trace.spec(job).queue,
            "user": trace.owners[trace.owner[job]].name,
            "state": book.state[job],
            "submit_s": trace.submit_us[job] / 1e6,
            "start_s": _seconds(book.first_start_us[job]),
            "end_s": _seconds(book.end_us[job]),
            "attempts": book.attempts[job],
            "nodes": [node for node, _ in book.placed[job]],
            "devices": {node: list(slots) for node, slots in book.placed[job]},
            "reason": book.reason[job] or None,
        }
        for job in range(len(trace))
    ]


def _seconds(at_us: int) -> float | None:
    return None if at_us == NEVER else at_us / 1e6


def pass_times(world: World) -> tuple[float, float]:
    """Milliseconds of a pass, p50 and p99, by the clock that was lent: not part of the document, since they differ
    each time."""
    ordered = sorted(world.book.pass_ns)
    return percentile(ordered, 50) / 1e6, percentile(ordered, 99) / 1e6
