"""`make bench-kueue`: Kueue's performance tests, in real time, through the whole controller.

Comes in: BENCH_CASE (baseline, large-scale; the first), BENCH_SHARE (of the workloads), BENCH_SCALE (of the queues),
BENCH_GPUS (of a node), BENCH_CLIENTS. Goes out: figures as JSON
lines. Called by: the Makefile. docs/benchmarks.md says what each figure is and how it is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from orchestrator.wire.api import JobSummary, micros_of
from tests.bench import common, kueue_account, kueue_work
from tests.bench.common import (
    Failed,
    Figures,
    Options,
    busy_s,
    first_thread_cpu_s,
    percentile,
    say,
    workplace,
)
from tests.bench.helper import Helper, Plain
from tests.bench.kueue_account import Asked, Ran
from tests.bench.kueue_work import WORKS, Work
from tests.bench.server import HOST, Server, check_jobs, wait_until_idle

DRAIN_S = 120.0
SLOWEST = 3.0  # times Kueue's own time, after which a run has failed


def main() -> None:
    """Measure what CASE names."""
    options = Options(CASE="baseline", SHARE=1.0, SCALE=1.0, GPUS=8, CLIENTS=40)
    works = [
        kueue_work.shortened(WORKS[name], options.number("SHARE"), options.number("SCALE"))
        for name in options.cases(tuple(WORKS))
    ]
    gpus = options.count("GPUS")
    if any(gpus < 1 or work.devices % gpus for work in works):
        common.refuse(f"GPUS={gpus}: the devices of a node must divide the {works[0].devices} of a cohort")
    with workplace() as folder:
        figures = Figures("kueue", folder)
        for work in works:
            (folder / work.name).mkdir()
            with (
                Server(folder / work.name) as server,
                Helper("emulated") as fleet,
                Helper("submitters") as sender,
            ):
                server.play(
                    fleet, kueue_work.cluster_text(work, gpus), gpus, kueue_work.models(work), push=True
                )
                emit(figures, options, work, measure(options, work, server, fleet, sender))


@dataclass(frozen=True, slots=True)
class Seen:
    """One run. Of jobs by number; times in nanoseconds of one monotonic clock."""

    begun_ns: int  # when the first was due
    sizes: dict[int, int]  # place in the work's sizes
    due_ns: dict[int, int]
    asked: dict[int, Asked]
    ran: dict[int, Ran]
    told: dict[int, JobSummary]
    utc_ns: int  # UTC minus the monotonic clock
    costs: Costs


@dataclass(frozen=True, slots=True)
class Costs:
    """What the run took of the machine, in processor seconds: of the server, of its thread for HTTP alone, of the load
    generators, of everything on the machine; `wall_s` is the time it took, `syncs` were answered."""

    server_s: float
    http_s: float
    load_s: float
    busy_s: float
    wall_s: float
    syncs: int

    @property
    def other_cores(self) -> float:
        """What other programs kept busy."""
        return (self.busy_s - self.server_s - self.load_s) / self.wall_s


def _cpu_s(server: Server, fleet: Helper, sender: Helper) -> tuple[float, float, float]:
    """The first three of `Costs`, so far."""
    return server.cpu_s(), first_thread_cpu_s(server.pid), fleet.cpu_s() + sender.cpu_s()


def measure(options: Options, work: Work, server: Server, fleet: Helper, sender: Helper) -> Seen:
    """Submit everything when it is due; wait until all of it has ended; check it."""
    documents, plan = kueue_work.documents(work), kueue_work.plan(work)
    devices = sum(documents[place]["spec"]["tasks"] for _, place in plan)
    say(f"{work.name}: {len(plan)} workloads from now on")
    before = _cpu_s(server, fleet, sender)
    busy, syncs, begun_s = busy_s(), fleet.ask("beats")["beats"], time.monotonic()
    sender.tell(
        "submit",
        host=HOST,
        port=server.port,
        token=server.token,
        clients=options.count("CLIENTS"),
        jobs=len(plan),
        rate=0,
        prefix=work.name,
        documents=documents,
        plan=plan,
    )
    there = fleet.ask("wait_ran", devices=devices, timeout_s=SLOWEST * work.wall_s)
    sent = sender.hear()
    wall_s = time.monotonic() - begun_s
    after = _cpu_s(server, fleet, sender)
    costs = Costs(
        server_s=after[0] - before[0],
        http_s=after[1] - before[1],
        load_s=after[2] - before[2],
        busy_s=busy_s() - busy,
        wall_s=wall_s,
        syncs=fleet.ask("beats")["beats"] - syncs,
    )
    if there["wrong"] or sent["repeats"]:
        raise Failed(f"{sent['repeats']} submits were sent again; {there['wrong']}")
    wait_until_idle(server.client, DRAIN_S)
    return _checked(work, server, plan, sent, kueue_account.by_job(there["spans"]), costs)


def _checked(
    work: Work,
    server: Server,
    plan: list[tuple[int, int]],
    sent: Plain,
    ran: dict[int, Ran],
    costs: Costs,
) -> Seen:
    """Failed unless each was submitted, started and ended once, on devices that were its own."""
    rows: list[tuple[int, int, int]] = sent["rows"]
    places = {row[0]: plan[number][1] for row, number in zip(rows, sent["numbers"], strict=True)}
    asked = {job: work.asked(places[job], acked) for job, _, acked in rows}
    kueue_account.check(ran, asked)
    told = {job.id: job for job in server.jobs()}
    check_jobs(list(told.values()), list(asked), "succeeded")
    return Seen(
        begun_ns=sent["begun"],
        sizes={job: place % len(work.sizes) for job, place in places.items()},
        due_ns={job: due for job, due, _ in rows},
        asked=asked,
        ran=ran,
        told=told,
        utc_ns=time.time_ns() - time.monotonic_ns(),
        costs=costs,
    )


def emit(figures: Figures, options: Options, work: Work, seen: Seen) -> None:
    """All figures of one run; Kueue's own beside them where the work is all of its own."""
    whole = options.number("SHARE") == 1.0 and options.number("SCALE") == 1.0
    case = work.name if whole else f"{work.name}/jobs={work.jobs}"
    ended_ns = max(micros_of(job.ended_at) * 1000 for job in seen.told.values() if job.ended_at)
    wall_s = (ended_ns - seen.utc_ns - seen.begun_ns) / 1e9
    devices = work.cohorts * work.devices
    held_s = sum(len(ran.devices) * _held_ns(seen, job) for job, ran in seen.ran.items()) / 1e9
    figures.emit(case, wall_s, "s", work.wall_s if whole else None)
    figures.emit(f"{case}/ideal", work.ideal_s, "s")
    figures.emit(f"{case}/use", 100 * held_s / devices / wall_s, "%", work.use if whole else None)
    figures.emit(f"{case}/running", 100 * work.device_s / devices / wall_s, "%")
    for place, size in enumerate(work.sizes):
        waits = [_admission_ns(seen, job) / 1e9 for job, at in seen.sizes.items() if at == place]
        mean = sum(waits) / len(waits)
        figures.emit(f"{case}/admission/{size.name}", mean, "s", size.admission_s if whole else None)
    turnarounds = [each / 1e6 for each in kueue_account.turnarounds_ns(seen.ran, seen.asked)]
    say(
        f"{case}: {wall_s:.1f} s, {len(turnarounds)} turnarounds, other load {seen.costs.other_cores:.2f} cores"
    )
    for percent in (50, 99):
        figures.emit(f"turnaround/{case}/p{percent}", percentile(turnarounds, percent), "ms")
    submits = [(seen.asked[job].since_ns - due) / 1e6 for job, due in seen.due_ns.items()]
    figures.emit(f"{case}/submit/p99", percentile(submits, 99), "ms")
    emit_costs(figures, case, work.jobs, seen.costs)


def emit_costs(figures: Figures, case: str, jobs: int, costs: Costs) -> None:
    """What a job cost: the server, its two threads (HTTP, and the core, which decides and writes), and the load."""
    figures.emit(f"{case}/server-cpu", costs.server_s / jobs * 1e3, "ms/job")
    figures.emit(f"{case}/server-cpu/http", costs.http_s / jobs * 1e3, "ms/job")
    figures.emit(f"{case}/server-cpu/core", (costs.server_s - costs.http_s) / jobs * 1e3, "ms/job")
    figures.emit(f"{case}/load-generator-cpu", costs.load_s / jobs * 1e3, "ms/job")
    figures.emit(f"{case}/syncs", costs.syncs / jobs, "1/job")
    figures.emit(f"{case}/other-load", costs.other_cores, "cores")


def _admission_ns(seen: Seen, job: int) -> int:
    """From when it was due to its start in the ledger."""
    started = seen.told[job].started_at
    assert started is not None
    return micros_of(started) * 1000 - seen.utc_ns - seen.due_ns[job]


def _held_ns(seen: Seen, job: int) -> int:
    """From its start to its end in the ledger: how long nobody else could have its devices."""
    told = seen.told[job]
    assert told.started_at is not None
    assert told.ended_at is not None
    return (micros_of(told.ended_at) - micros_of(told.started_at)) * 1000


if __name__ == "__main__":
    common.run(main)
