"""Builders for stories about simulations: a trace in a line a job, a world that has run.

Comes in: the few values that a story is about. Goes out: traces and worlds. Called by: tests of simulate.
"""

from __future__ import annotations

from typing import Any

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.job import JobSpec
from orchestrator.simulate.settings import Settings
from orchestrator.simulate.trace import PLAIN, Special, Trace, TraceBuilder
from orchestrator.simulate.world import World

S = 1_000_000  # microseconds

Row = tuple[float, float, JobSpec] | tuple[float, float, JobSpec, Special]


def trace(*rows: Row) -> Trace:
    """Jobs as (submit seconds, run seconds, what it asks for)."""
    builder = TraceBuilder()
    for submit_s, run_s, spec, *special in rows:
        builder.add(
            spec,
            submit_us=round(submit_s * S),
            run_us=round(run_s * S),
            user="alice",
            special=special[0] if special else PLAIN,
        )
    return builder.build()


def played(spec: ClusterSpec, jobs: Trace, settings: Settings | None = None, **more: Any) -> World:
    """A world that has run."""
    world = World(spec, jobs, settings=settings, **more)
    world.run()
    return world


def starts(world: World) -> list[float | None]:
    """Seconds of each job's first start; None: it never started."""
    return [None if at_us < 0 else at_us / S for at_us in world.book.first_start_us]


def ends(world: World) -> list[float | None]:
    """The same of ends."""
    return [None if at_us < 0 else at_us / S for at_us in world.book.end_us]
