"""`make bench-simulate`: how long the simulator takes for a trace of a million jobs on a thousand nodes.

Comes in: BENCH_JOBS, BENCH_NODES, BENCH_SHAPES, BENCH_LOAD (of the GPUs), BENCH_GRID (seconds between passes; 0: at
once), BENCH_SEED. Goes out: figures as JSON lines. Called by: the Makefile. docs/benchmarks.md says what each figure
is.

The trace: nodes of 8 GPUs, 64 cores and 512 GiB; shapes of 1, 2, 4 or 8 GPUs on one node, or 2 to 8 whole nodes, in
eight queues; run times log-normal around half an hour; arrivals Poisson at the rate that gives the load.
"""

from __future__ import annotations

import resource
import time
from random import Random
from typing import Any

from orchestrator.ledger.apply import apply
from orchestrator.model.cluster import ClusterSpec, Emulate, GpuSpec, Network, Pool, Queue, Site, SiteKind
from orchestrator.model.job import JobSpec, LaunchKind, PerNode, Request
from orchestrator.scheduler import Policy, decide
from orchestrator.simulate.report import finished
from orchestrator.simulate.settings import Core, Settings
from orchestrator.simulate.trace import Trace, TraceBuilder
from orchestrator.simulate.world import World
from tests.bench import common
from tests.bench.common import Failed, Figures, Options, say, workplace

SECOND, GIB = 1_000_000, 1 << 30
QUEUES = 8
RUN_S, SPREAD = 1800.0, 1.0  # median and sigma of run times
SIZES = ((1, 0.55), (2, 0.15), (4, 0.10), (8, 0.12), (16, 0.04), (32, 0.03), (64, 0.01))  # GPUs and how often


def main() -> None:
    """Generate, simulate, tell."""
    options = Options(JOBS=1_000_000, NODES=1_000, SHAPES=200, LOAD=0.9, GRID=0.0, SEED=1)
    trace, load = generated(options)
    say(f"{len(trace)} jobs of {len(trace.shapes)} shapes, load {load:.3f}")
    with workplace() as folder:
        figures = Figures("simulate", folder)
    timed = _Timed()
    settings = Settings(grid_us=round(options.number("GRID") * SECOND), commitments=False, samples=200)
    world = World(_cluster(options.count("NODES")), trace, Policy(), settings, timed.core())
    begun, used = time.perf_counter(), time.process_time()
    world.run()
    took, cpu_s = time.perf_counter() - begun, time.process_time() - used
    run = finished("defaults", world)
    if run.summary.states["succeeded"] != len(trace):
        raise Failed(f"not every job came to its end: {run.summary.states}")
    _tell(figures, options, took, cpu_s, timed, world)
    wait, share = run.summary.wait.mean or 0.0, run.summary.utilisation or 0.0
    say(f"mean wait {wait:.0f} s, {100 * share:.1f} % of GPUs held, {world.book.passes} passes")


def _tell(figures: Figures, options: Options, took: float, cpu_s: float, timed: _Timed, world: World) -> None:
    jobs = len(world.trace)
    case = f"simulate/jobs={jobs}/nodes={options.count('NODES')}/grid={options.number('GRID'):g}"
    per_job = 1e6 / jobs
    outside = cpu_s - timed.decide_s - timed.apply_s
    figures.emit(case, took, "s")
    figures.emit(f"{case}/rate", jobs / took, "jobs/s")
    figures.emit(f"{case}/cpu", cpu_s, "s")
    figures.emit(f"{case}/core", (timed.decide_s + timed.apply_s) * per_job, "us/job")
    figures.emit(f"{case}/core/decide", timed.decide_s * per_job, "us/job")
    figures.emit(f"{case}/core/apply", timed.apply_s * per_job, "us/job")
    figures.emit(f"{case}/outside", outside * per_job, "us/job")
    figures.emit(f"{case}/passes", world.book.passes / jobs, "passes/job")
    figures.emit(f"{case}/peak-rss", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, "MB")


class _Timed:
    """The core with its processor time taken. Of the two looks at the clock about one falls into what is measured."""

    def __init__(self) -> None:
        self.decide_s = self.apply_s = 0.0

    def core(self) -> Core:
        """For a world."""
        return Core(self._decide, self._apply)

    def _decide(self, *arguments: Any) -> Any:
        begun = time.process_time()
        found = decide(*arguments)
        self.decide_s += time.process_time() - begun
        return found

    def _apply(self, *arguments: Any) -> None:
        begun = time.process_time()
        apply(*arguments)
        self.apply_s += time.process_time() - begun


def _cluster(nodes: int) -> ClusterSpec:
    names = tuple(f"n-{number:05}" for number in range(nodes))
    gpu = GpuSpec("H100-SXM5-80GB", 8, Emulate.ALWAYS)
    queues = tuple(Queue(f"q{number}") for number in range(QUEUES))
    site = Site("hall", SiteKind.LOCAL, Network("", 20000, 29999))
    pool = Pool("h100", "hall", names, gpu, cores=64, memory=512 * GIB)
    return ClusterSpec("bench", sites=(site,), pools=(pool,), queues=queues)


def generated(options: Options) -> tuple[Trace, float]:
    """The trace, and the load that it is."""
    dice = Random(options.count("SEED"))
    builder = TraceBuilder()
    shapes = [_shape(dice, number) for number in range(options.count("SHAPES"))]
    shapes = list(dict.fromkeys(shapes))
    numbers = [builder.shape(spec) for spec in shapes]
    gpus = [spec.request.total_gpus() for spec in shapes]
    jobs, capacity = options.count("JOBS"), options.count("NODES") * 8
    drawn = [(dice.randrange(len(shapes)), dice.lognormvariate(0.0, SPREAD) * RUN_S) for _ in range(jobs)]
    work = sum(gpus[shape] * run_s for shape, run_s in drawn)
    gap_s = work / jobs / capacity / options.number("LOAD")
    at_s = 0.0
    for shape, run_s in drawn:
        at_s += dice.expovariate(1.0) * gap_s
        builder.add(
            numbers[shape], submit_us=int(at_s * SECOND), run_us=int(run_s * SECOND), user=f"u{shape % 40}"
        )
    return builder.build(), work / capacity / at_s


def _shape(dice: Random, number: int) -> JobSpec:
    sizes, weights = [size for size, _ in SIZES], [weight for _, weight in SIZES]
    gpus = dice.choices(sizes, weights)[0]
    cores = dice.randrange(1, 9)
    memory = dice.randrange(1, 9) * 8 * GIB
    if gpus > 8:
        request = Request(nodes=gpus // 8, per_node=PerNode(8, 8 * cores, memory))
    else:
        request = Request(tasks=1, per_task=PerNode(gpus, gpus * cores, gpus * memory // 8))
    return JobSpec(
        "bench", request, ("true",), queue=f"q{number % QUEUES}", launch=LaunchKind.RANKS, time_limit_s=10**7
    )


if __name__ == "__main__":
    common.run(main)
