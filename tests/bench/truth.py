"""`make bench-truth`: whether the simulator predicts waits that are then measured on a local cluster.

Comes in: BENCH_JOBS, BENCH_NODES, BENCH_GPUS, BENCH_LOAD, BENCH_RUN (mean seconds), BENCH_KEPT and BENCH_OTHER
(kept_jobs of the two policies), BENCH_TIMES (real runs of the second), BENCH_DEALS (predictions with latencies dealt
anew), BENCH_SEED, BENCH_KEEP (a folder for the ledgers). Goes out: figures as JSON lines. Called by: the Makefile.
docs/benchmarks.md says what each figure is.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean, pstdev
from typing import NamedTuple

from orchestrator import spec
from orchestrator.ledger import events
from orchestrator.ledger.events import Event, from_stored
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.job import Request
from orchestrator.scheduler import policy_of
from orchestrator.simulate.metrics import Spread, spread, summary
from orchestrator.simulate.settings import Settings
from orchestrator.simulate.trace import PLAIN, Trace
from orchestrator.simulate.trace_ledger import read_ledger
from orchestrator.simulate.world import World
from orchestrator.store.recorded import Recorded
from tests.bench import common
from tests.bench.common import Failed, Figures, Options, say, workplace
from tests.bench.local import Local
from tests.bench.server import job_document, wait_until_idle

DRAIN_S = 600.0
SIZES = ((1, 0.5), (2, 0.15), (4, 0.1), (8, 0.15), (16, 0.1))  # GPUs and how often; 16 are two nodes of eight
RATHER_EVEN = 3.0  # shape of the gamma distribution of run times


class Planned(NamedTuple):
    """A job: when it comes, how long it sleeps, how many GPUs it takes."""

    at_s: float
    run_s: float
    gpus: int


def main() -> None:
    """Real runs of the same jobs under two policies, and what the first one's ledger says of the others."""
    options = Options(
        JOBS=200, NODES=8, GPUS=8, LOAD=3.0, RUN=5.0, KEPT=0, OTHER=8, TIMES=1, DEALS=8, SEED=1, KEEP=""
    )
    plan = planned(options)
    say(f"{len(plan)} jobs within {plan[-1].at_s:.0f} s")
    with workplace() as folder:
        figures = Figures("truth", folder)
        first = _run(options, folder / "first", plan, options.count("KEPT"))
        others = [
            _run(options, folder / f"other-{number}", plan, options.count("OTHER"))
            for number in range(1, options.count("TIMES") + 1)
        ]
        cluster = _cluster(folder / "first" / "cluster.yaml")
        case = f"truth/jobs={len(plan)}/kept={options.count('KEPT')}-{options.count('OTHER')}"
        _tell(figures, f"{case}/again", _predicted(first, cluster, options.count("KEPT")), _measured(first))
        predicted = _predicted(first, cluster, options.count("OTHER"))
        for other in others:
            _tell(figures, case, predicted, _measured(other))
        dealt = [
            _predicted(first, cluster, options.count("OTHER"), Random(number))
            for number in range(options.count("DEALS"))
        ]
        _tell_dealt(figures, f"{case}/dealt", dealt)
        for other in others[1:]:
            _tell(figures, f"{case}/chance", _measured(other), _measured(others[0]), ("later", "first"))


def _tell(
    figures: Figures,
    case: str,
    one: Spread,
    other: Spread,
    names: tuple[str, str] = ("predicted", "measured"),
) -> None:
    """Mean and p95 of both, and how many times the other's the one is."""
    for name, found, real in (("mean", one.mean, other.mean), ("p95", one.p95, other.p95)):
        if not found or not real:
            raise Failed(f"{case}: nobody waited")
        figures.emit(f"{case}/{name}/{names[0]}", found, "s")
        figures.emit(f"{case}/{name}/{names[1]}", real, "s")
        figures.emit(f"{case}/{name}/ratio", found / real, "times")


def _tell_dealt(figures: Figures, case: str, dealt: list[Spread]) -> None:
    """What predictions differ by that chance alone tells apart: their mean, the deviation as a part of it."""
    for name, found in (("mean", [one.mean for one in dealt]), ("p95", [one.p95 for one in dealt])):
        waits = [wait for wait in found if wait]
        if waits:
            figures.emit(f"{case}/{name}/predicted", fmean(waits), "s")
            figures.emit(f"{case}/{name}/deviation", pstdev(waits) / fmean(waits), "part")


def planned(options: Options) -> list[Planned]:
    """Jobs in order of arrival, so many that the load is what was asked for."""
    dice = Random(options.count("SEED"))
    sizes, weights = [size for size, _ in SIZES], [weight for _, weight in SIZES]
    jobs, capacity = options.count("JOBS"), options.count("NODES") * options.count("GPUS")
    mean_s = options.number("RUN")
    drawn = [
        (dice.choices(sizes, weights)[0], round(dice.gammavariate(RATHER_EVEN, mean_s / RATHER_EVEN), 2))
        for _ in range(jobs)
    ]
    gap_s = sum(gpus * run_s for gpus, run_s in drawn) / jobs / capacity / options.number("LOAD")
    at_s, found = 0.0, []
    for gpus, run_s in drawn:
        at_s += dice.expovariate(1.0) * gap_s
        found.append(Planned(at_s, run_s, gpus))
    return found


def _run(options: Options, folder: Path, plan: list[Planned], kept: int) -> list[Event]:
    """The ledger of a real run under a policy."""
    more = f"scheduler: {{kept_jobs: {kept}}}\n"
    with Local(folder, options.count("NODES"), options.count("GPUS"), more) as cluster:
        client = cluster.client
        begun_s = time.monotonic()
        for job in plan:
            time.sleep(max(begun_s + job.at_s - time.monotonic(), 0.0))
            client.submit(_document(job, options.count("GPUS")))
        late_s = time.monotonic() - begun_s - plan[-1].at_s
        wait_until_idle(client, DRAIN_S)
        state = cluster.state
    if options.text("KEEP"):
        kept_in = Path(options.text("KEEP")) / folder.name
        kept_in.mkdir(parents=True)
        for file in state.glob("*.db*"):
            shutil.copy(file, kept_in)
    recorded = [from_stored(stored) for stored in Recorded(state).events(0)]
    say(
        f"kept_jobs {kept}: mean wait {_measured(recorded).mean or 0:.2f} s; the last submit was {late_s:.2f} s late"
    )
    return recorded


def _document(job: Planned, gpus: int) -> dict[str, object]:
    command = ["sleep", str(job.run_s)]
    if job.gpus > gpus:
        return job_document(
            "truth", command, nodes=job.gpus // gpus, per_node={"gpus": gpus}, time_limit="10m"
        )
    return job_document("truth", command, tasks=1, per_task={"gpus": job.gpus}, time_limit="10m")


def _cluster(file: Path) -> ClusterSpec:
    loaded = spec.load_cluster(str(file))
    if loaded.cluster is None:
        raise Failed(spec.render(loaded.errors))
    return loaded.cluster


def _measured(recorded: list[Event]) -> Spread:
    """Waits from the ledger: from submit to the first process."""
    submitted_us: dict[int, int] = {}
    started_us: dict[int, int] = {}
    for event in recorded:
        if isinstance(event.body, events.JobSubmitted):
            submitted_us[event.body.job] = event.t_us
        elif isinstance(event.body, events.AttemptStarted):
            started_us.setdefault(event.body.attempt.job, event.t_us)
    return spread(started_us[job] - at_us for job, at_us in submitted_us.items() if job in started_us)


def _predicted(recorded: list[Event], cluster: ClusterSpec, kept: int, dice: Random | None = None) -> Spread:
    """What the simulator says; with dice, as if each job had had the latencies of another."""
    found = read_ledger(recorded)
    if found.left_out:
        raise Failed(f"{found.left_out} jobs did not run to their end")
    policy = replace(policy_of(cluster), kept=kept)
    trace = _dealt(found.trace, dice) if dice is not None else found.trace
    world = World(cluster, trace, policy, Settings(commitments=False))
    world.run()
    return summary(world).wait


def _dealt(trace: Trace, dice: Random) -> Trace:
    """The same jobs, with launches, passes and ends of nodes dealt anew among those that ask for the same."""
    alike: dict[Request, list[int]] = {}
    for index in range(len(trace)):
        alike.setdefault(trace.spec(index).request, []).append(index)
    special = {}
    for jobs in alike.values():
        for index, other in zip(jobs, dice.sample(jobs, len(jobs)), strict=True):
            special[index] = trace.special.get(other, PLAIN)
    return replace(trace, special=special)


if __name__ == "__main__":
    common.run(main)
