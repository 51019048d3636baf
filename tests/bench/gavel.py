"""`make bench-gavel`: mean completion times on Gavel's continuous single-GPU traces, beside those that its authors
printed.

Comes in: BENCH_RATES (jobs an hour, by commas), BENCH_SEEDS, BENCH_CASE (fifo-agnostic, fifo-aware; all),
GANGLINE_DATA (the data folder). Goes out: figures as JSON lines, hours. Called by: the Makefile. docs/benchmarks.md
says what each figure is.

The work is that of Gavel's own sweep (OSDI'20): 36 V100, 36 P100 and 36 K80, each in a server of its own; arrivals
and jobs as its generator draws them for the seed; a job runs for its steps over the rate of its type on the GPU that
it has. Jobs 4000 to 4999 count.

What its simulator does, by its sources (scheduler.py, policies/fifo.py, commit c4fa400), is done here as well: work
starts at ends of rounds of 360 s, and who gets what is settled anew no sooner than 1920 s after the last time.
*Agnostic* means there: first come, first served, on the V100s, then the P100s, then the K80s (the type that is drawn
is not the one that is used). *Aware* means: each job on the type that is fastest for it among those that those before
it have left, settled anew each time, so that running jobs move when something better is free; a move costs nothing.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Any

from orchestrator.model.attempt import EndCause
from orchestrator.model.cluster import ClusterSpec, Emulate, GpuSpec, Network, Pool, Site, SiteKind
from orchestrator.model.cluster_words import FairShare
from orchestrator.model.job import Checkpoint, JobSpec, LaunchKind, PerNode, Request, Workload
from orchestrator.scheduler import Policy
from orchestrator.simulate import lives
from orchestrator.simulate.book import NEVER
from orchestrator.simulate.settings import Settings
from orchestrator.simulate.trace import Special, Trace, TraceBuilder
from orchestrator.simulate.world import World
from tests.bench import common
from tests.bench.common import ROOT, Failed, Figures, Options, say, workplace

SECOND = 1_000_000
TYPES = ("v100", "p100", "k80")
EACH = 36
MEASURED = range(4000, 5000)
ROUND_S, REST_S = 360, 1920
AGNOSTIC, AWARE = "fifo-agnostic", "fifo-aware"
# Hours, mean of three seeds, as the notebooks in the authors' repository print them.
PUBLISHED: dict[str, dict[str, float]] = {
    AGNOSTIC: {"0.4": 17.58, "2.0": 18.32, "4.0": 25.38, "4.4": 44.28, "4.8": 99.19, "5.2": 151.67},
    AWARE: {
        "0.4": 15.31,
        "2.0": 15.45,
        "4.0": 17.08,
        "4.4": 18.19,
        "4.8": 22.24,
        "5.2": 56.69,
        "5.6": 104.12,
        "6.0": 150.04,
    },
}


def main() -> None:
    """Both policies at each rate, over all seeds."""
    options = Options(CASE="", RATES="0.4,2.0,4.0,4.4,4.8,5.2", SEEDS="0,1,2")
    data = _data()
    rates = [f"{float(rate):.1f}" for rate in options.text("RATES").split(",")]
    seeds = [int(seed) for seed in options.text("SEEDS").split(",")]
    speeds = _speeds(data)
    with workplace() as folder:
        figures = Figures("gavel", folder)
    for case in options.cases((AGNOSTIC, AWARE)):
        for rate in rates:
            hours = [_mean_hours(case, float(rate), _jobs(data, seed), speeds) for seed in seeds]
            say(f"{case} rate={rate}: {', '.join(f'{one:.2f}' for one in hours)} h")
            figures.emit(f"gavel/{case}/rate={rate}", sum(hours) / len(hours), "h", PUBLISHED[case].get(rate))


def _data() -> Path:
    folder = Path(os.environ.get("GANGLINE_DATA") or ROOT.parent / "shared" / "data") / "gavel"
    if not folder.is_dir():
        common.refuse(f"there is no folder {folder}: GANGLINE_DATA names the one that `gavel` lies in")
    return folder


# --- the work -------------------------------------------------------------------------------------------------------

Jobs = list[dict[str, str]]
Speeds = dict[str, dict[str, float]]  # steps a second, by job type and GPU


def _jobs(data: Path, seed: int) -> Jobs:
    with gzip.open(data / "generated" / f"single_gpu_seed{seed}.csv.gz", "rt") as stream:
        return list(csv.DictReader(stream))


def _speeds(data: Path) -> Speeds:
    with gzip.open(data / "simulation_throughputs.json.gz", "rt") as stream:
        table: dict[str, dict[str, dict[str, Any]]] = json.load(stream)
    found: Speeds = {}
    for kind in TYPES:
        for key, rates in table[kind].items():
            name, _, scale = key.strip("()").rpartition(", ")
            if scale == "1":
                found.setdefault(name.strip("'"), {})[kind] = float(rates["null"])
    return found


def _trace(jobs: Jobs, speeds: Speeds, rate: float, case: str) -> Trace:
    builder = TraceBuilder()
    for job in jobs:
        speed, steps = speeds[job["model"]], float(job["total_steps"])
        run_on = tuple((kind, round(steps / speed[kind] * SECOND)) for kind in TYPES)
        order = sorted(TYPES, key=lambda kind, speed=speed: -speed[kind]) if case == AWARE else list(TYPES)  # type: ignore[misc]
        submit_us = round(float(job["arrival_unit_mean"]) * 3600 / rate * SECOND)
        spec = _spec(tuple(order))
        builder.add(spec, submit_us=submit_us, run_us=run_on[0][1], special=Special(run_on))
    return builder.build()


def _spec(models: tuple[str, ...]) -> JobSpec:
    request = Request(tasks=1, per_task=PerNode(1, gpu_models=models))
    keeps = Checkpoint("job")  # it goes on where it was, whenever it is moved
    return JobSpec(
        "gavel", request, ("true",), workload=Workload.SERVING, launch=LaunchKind.RANKS, checkpoint=keeps
    )


def _cluster() -> ClusterSpec:
    site = Site("hall", SiteKind.LOCAL, Network("", 20000, 29999))
    pools = tuple(
        Pool(
            kind,
            "hall",
            tuple(f"{kind}-{number:02}" for number in range(EACH)),
            GpuSpec(kind, 1, Emulate.ALWAYS),
            8,
            1 << 36,
        )
        for kind in TYPES
    )
    return ClusterSpec("gavel", sites=(site,), pools=pools)


# --- the run --------------------------------------------------------------------------------------------------------


def _mean_hours(case: str, rate: float, jobs: Jobs, speeds: Speeds) -> float:
    policy = Policy(fair_share=FairShare.OFF, models_ranked=True)
    settings = Settings(grid_us=ROUND_S * SECOND, rest_us=REST_S * SECOND, commitments=False, samples=1)
    world = World(_cluster(), _trace(jobs, speeds, rate, case), policy, settings)
    if case == AWARE:
        world.before_pass = move
    world.run()
    book, submit_us = world.book, world.trace.submit_us
    if any(book.end_us[job] == NEVER for job in MEASURED):
        raise Failed(f"{case} rate={rate}: not every job came to its end")
    return sum(book.end_us[job] - submit_us[job] for job in MEASURED) / len(MEASURED) / 3600 / SECOND


def move(world: World) -> None:
    """Have running jobs wait again that get another type now: in order of arrival, each takes the one that is fastest
    for it of those that are left. The pass that follows gives it to them."""
    left = dict.fromkeys(TYPES, EACH)
    moving = []
    for job_id, job in world.state.jobs.items():
        if not any(left.values()):
            break
        best = next(kind for kind in job.spec.request.per_task.gpu_models if left[kind])
        left[best] -= 1
        life = world.lives.get(job_id)
        if life is not None and life.model != best:
            moving.append(life)
    for life in moving:
        lives.end(world, life, EndCause.REQUEUED, "something better is free")


if __name__ == "__main__":
    common.run(main)
