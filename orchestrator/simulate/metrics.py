"""What a simulation says of its policy: waits, completion, use, fragmentation, fairness, what was lost, what it cost.

Comes in: a `World` that has run. Goes out: a `Summary`. Called by: report, pictures, the benchmarks.

Percentiles are nearest ranks. Waits are from submit to the first start, completion from submit to the end; both of
jobs that came so far. What can't be said is None, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.model.attempt import JobState
from orchestrator.simulate import money
from orchestrator.simulate.book import NEVER, REFUSED
from orchestrator.simulate.sampler import asked_milli

if TYPE_CHECKING:
    from orchestrator.simulate.world import World

HOUR_MILLI_US = 1000 * 3_600_000_000  # thousandths of GPUs times microseconds in one GPU-hour
SIZES = (
    (0, "no GPU"),
    (999, "part of a GPU"),
    (1000, "1 GPU"),
    (7999, "2-7 GPUs"),
    (8000, "8 GPUs"),
    (64_000, "9-64 GPUs"),
)
LARGEST = "over 64 GPUs"


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of several jobs; None of none."""

    jobs: int
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Some of the jobs: those of a queue, or of a size."""

    name: str
    wait: Spread
    completion: Spread
    gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """One simulation in figures. Shares are between 0 and 1; hours are GPU-hours; `states` counts jobs."""

    states: dict[str, int]
    reasons: dict[str, int]  # of jobs that were refused or wait still: the last code of each, counted
    wait: Spread
    completion: Spread
    queues: tuple[Group, ...]
    sizes: tuple[Group, ...]
    lasted_s: float
    utilisation: float | None
    fragmentation: float | None
    fairness: float | None
    capacity_hours: float
    held_hours: float
    ran_hours: float
    lost_hours: float
    dollars: float | None
    kwh: float | None
    left_out: tuple[str, ...]
    passes: int


def summary(world: World) -> Summary:
    """The figures of a world that has run."""
    book, trace = world.book, world.trace
    usage = book.usage
    held = sum(one.held for one in usage.values())
    bill = money.bill(world)
    everything = range(len(trace))
    return Summary(
        states=_states(world),
        reasons=_reasons(world),
        wait=_waits(world, everything),
        completion=_completions(world, everything),
        queues=_by_queue(world),
        sizes=_by_size(world),
        lasted_s=book.last_us / 1e6,
        utilisation=held / world.sampler.capacity_area if world.sampler.capacity_area else None,
        fragmentation=_fragmentation(world),
        fairness=_fairness(world),
        capacity_hours=world.sampler.capacity_area / HOUR_MILLI_US,
        held_hours=held / HOUR_MILLI_US,
        ran_hours=sum(one.ran for one in usage.values()) / HOUR_MILLI_US,
        lost_hours=sum(one.lost for one in usage.values()) / HOUR_MILLI_US,
        dollars=bill.dollars,
        kwh=bill.kwh,
        left_out=bill.left_out,
        passes=book.passes,
    )


def spread(values: Iterable[int]) -> Spread:
    """Of microseconds."""
    found = sorted(values)
    if not found:
        return Spread(0)
    mean = sum(found) / len(found) / 1e6
    p50, p95, p99 = (percentile(found, percent) / 1e6 for percent in (50, 95, 99))
    return Spread(len(found), mean, p50, p95, p99, found[-1] / 1e6)


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that at least so many percent of all are no larger than; 0 of nothing."""
    if not ordered:
        return 0
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1]


def _states(world: World) -> dict[str, int]:
    found = dict.fromkeys(
        [*map(str, (JobState.SUCCEEDED, JobState.FAILED)), REFUSED, "running", "waiting"], 0
    )
    for state in world.book.state:
        found[state] = found.get(state, 0) + 1
    return found


def _reasons(world: World) -> dict[str, int]:
    book = world.book
    never_ran = (
        book.reason[job]
        for job, state in enumerate(book.state)
        if state in (REFUSED, "waiting") and book.reason[job]
    )
    return dict(Counter(never_ran).most_common())


def _waits(world: World, jobs: Iterable[int]) -> Spread:
    book, submit_us = world.book, world.trace.submit_us
    started = book.first_start_us
    return spread(started[job] - submit_us[job] for job in jobs if started[job] != NEVER)


def _completions(world: World, jobs: Iterable[int]) -> Spread:
    """Of jobs that were taken in and are over."""
    book, submit_us = world.book, world.trace.submit_us
    return spread(
        book.end_us[job] - submit_us[job]
        for job in jobs
        if book.end_us[job] != NEVER and book.state[job] != REFUSED
    )


def _group(world: World, name: str, jobs: list[int], gpu_hours: float | None = None) -> Group:
    return Group(name, _waits(world, jobs), _completions(world, jobs), gpu_hours)


def _by_queue(world: World) -> tuple[Group, ...]:
    trace, usage = world.trace, world.book.usage
    queues = [spec.queue for spec in trace.shapes]
    members: dict[str, list[int]] = {queue.name: [] for queue in world.cluster.queues}
    for job, shape in enumerate(trace.shape):
        members.setdefault(queues[shape], []).append(job)
    return tuple(
        _group(world, name, jobs, usage[name].held / HOUR_MILLI_US if name in usage else 0.0)
        for name, jobs in members.items()
        if jobs
    )


def size_of(milli: int) -> str:
    """`8 GPUs`, `part of a GPU`."""
    return next((name for most, name in SIZES if milli <= most), LARGEST)


def _by_size(world: World) -> tuple[Group, ...]:
    sizes = [size_of(asked_milli(spec)) for spec in world.trace.shapes]
    members: dict[str, list[int]] = {name: [] for name in (*(name for _, name in SIZES), LARGEST)}
    for job, shape in enumerate(world.trace.shape):
        members[sizes[shape]].append(job)
    return tuple(_group(world, name, jobs) for name, jobs in members.items() if jobs)


def _fragmentation(world: World) -> float | None:
    """Over the pictures in which something waits and something is free."""
    seen = [one for one in world.sampler.samples if one.stranded is not None]
    free = sum(one.free for one in seen)
    return sum(one.stranded or 0 for one in seen) / free if free else None


def _fairness(world: World) -> float | None:
    """Jain's index over queues' GPU time by weight: 1 if all had as much for their weight, 1/n if one had
    everything."""
    weights = {queue.name: max(queue.weight, 1) for queue in world.cluster.queues}
    asked = {world.trace.shapes[shape].queue for shape in dict.fromkeys(world.trace.shape)}
    usage = world.book.usage
    each = [
        (usage[name].held if name in usage else 0) / HOUR_MILLI_US / weight
        for name, weight in weights.items()
        if name in asked
    ]
    squares = sum(value * value for value in each)
    return sum(each) ** 2 / (len(each) * squares) if squares else None
