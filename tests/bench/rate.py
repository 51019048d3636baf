"""`make bench-rate`: jobs a second through the whole path, and how soon a large gang runs.

Comes in: BENCH_CASE (emulated, real, gang), BENCH_JOBS, BENCH_CLIENTS, BENCH_AGENTS, BENCH_GPUS, BENCH_NODES, BENCH_RUNS. Goes
out: figures as JSON lines. Called by: the Makefile. docs/benchmarks.md says what each figure is and how it is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from orchestrator.client import Client
from orchestrator.wire.api import micros_of

from tests.bench import common
from tests.bench.common import Failed, Figures, Options, busy_s, median, percentile, say, workplace
from tests.bench.helper import Helper
from tests.bench.local import Local
from tests.bench.server import HOST, Server, check_jobs, job_document, wait_until_idle

CASES = ("emulated", "real", "gang")
DRAIN_S = 120.0
GANGS = 5
# Slurm 22.05 with 40 slurmd on one machine of 2 cores: 3,000 array tasks of `true` with one GPU in 35.7 s; a gang of 32
# nodes with 8 GPUs each from submit to running in 2.1 s.
SLURM_JOBS = 84.0
SLURM_GANG_S = 2.1


@dataclass(frozen=True, slots=True)
class Emulated:
    """One run with emulated agents: rates in jobs a second, times in seconds."""

    submit_rate: float
    start_rate: float
    submit_s: list[float]
    start_s: list[float]
    server_cpu_s: float
    load_cpu_s: float
    other_cores: float


def main() -> None:
    """Measure what CASE names."""
    options = Options(CASE="", JOBS=3000, CLIENTS=8, AGENTS=40, GPUS=8, NODES=32, RUNS=3)
    cases = options.cases(CASES)
    with workplace() as folder:
        figures = Figures("rate", folder)
        if "emulated" in cases:
            emulated(options, figures, folder / "emulated")
        if "real" in cases or "gang" in cases:
            with local(options, folder / "l") as cluster, Helper("submitters") as submitters:
                if "real" in cases:
                    real(options, figures, cluster, submitters)
                if "gang" in cases:
                    gang(options, figures, cluster)


# --- emulated agents --------------------------------------------------------------------------------------------------


def emulated(options: Options, figures: Figures, folder: Path) -> None:
    """Submit to acknowledged start, with agents that cost the server what real ones do and the machine next to nothing."""
    jobs, clients, agents = (options.count(name) for name in ("JOBS", "CLIENTS", "AGENTS"))
    folder.mkdir()
    case = f"emulated/agents={agents}/clients={clients}/jobs={jobs}"
    runs: list[Emulated] = []
    with Server(folder) as server, Helper("emulated") as fleet, Helper("submitters") as submitters:
        server.populate(fleet, agents, options.count("GPUS"))
        known = 0
        for number in range(options.count("RUNS")):
            run = one_emulated(server, fleet, submitters, jobs, clients, f"run{number}")
            known += jobs
            say(
                f"{case} run {number + 1}: {run.start_rate:.0f} starts/s, {run.submit_rate:.0f} submits/s, "
                f"start p50 {percentile(run.start_s, 50) * 1e3:.1f} p99 {percentile(run.start_s, 99) * 1e3:.1f} ms, "
                f"server {run.server_cpu_s / jobs * 1e3:.2f} ms/job, others {run.other_cores:.2f} cores"
            )
            runs.append(run)
    _emit_emulated(figures, case, runs, jobs)


def one_emulated(
    server: Server, fleet: Helper, submitters: Helper, jobs: int, clients: int, prefix: str
) -> Emulated:
    """Submit `jobs` jobs of `true` and wait until each start is acknowledged to its agent."""
    before = server.cpu_s(), fleet.cpu_s() + submitters.cpu_s(), busy_s(), time.monotonic()
    submitters.tell(
        "submit",
        host=HOST,
        port=server.port,
        token=server.token,
        clients=clients,
        jobs=jobs,
        rate=0,
        prefix=prefix,
        document=job_document("true", ["true"]),
    )
    starts = fleet.ask("wait_started", count=jobs, timeout_s=DRAIN_S)
    sent = submitters.hear()
    wall_s = time.monotonic() - before[3]
    server_cpu, load_cpu = server.cpu_s() - before[0], fleet.cpu_s() + submitters.cpu_s() - before[1]
    other = (busy_s() - before[2] - server_cpu - load_cpu) / wall_s
    if starts["wrong"] or sent["repeats"] or len(starts["started"]) != jobs:
        raise Failed(f"{len(starts['started'])} of {jobs} started, {sent['repeats']} sent again, {starts['wrong']}")
    wait_until_idle(server.client, DRAIN_S)
    begun = sent["begun"]
    sent_at = {job: at for job, at, _ in sent["rows"]}
    started_at = dict(map(tuple, starts["started"]))
    if sent_at.keys() != started_at.keys():
        raise Failed("other jobs were started than were submitted")
    newest = {job.id: job for job in server.client.jobs(most=jobs)}
    check_jobs(list(newest.values()), list(sent_at), "succeeded")
    return Emulated(
        submit_rate=jobs / (max(at for _, _, at in sent["rows"]) - begun) * 1e9,
        start_rate=jobs / (max(started_at.values()) - begun) * 1e9,
        submit_s=[(acked - at) / 1e9 for _, at, acked in sent["rows"]],
        start_s=[(started_at[job] - at) / 1e9 for job, at in sent_at.items()],
        server_cpu_s=server_cpu,
        load_cpu_s=load_cpu,
        other_cores=other,
    )


def _emit_emulated(figures: Figures, case: str, runs: list[Emulated], jobs: int) -> None:
    """The median over the runs of each figure, and the slowest run's rate."""
    emit = figures.emit
    emit(f"{case}/submit-to-start", median([run.start_rate for run in runs]), "jobs/s")
    emit(f"{case}/submit-to-start/min", min(run.start_rate for run in runs), "jobs/s")
    emit(f"{case}/submit-to-start/max", max(run.start_rate for run in runs), "jobs/s")
    for name in (50, 99):
        emit(f"{case}/submit-to-start/p{name}", median([percentile(r.start_s, name) for r in runs]) * 1e3, "ms")
        emit(f"{case}/submit/p{name}", median([percentile(r.submit_s, name) for r in runs]) * 1e3, "ms")
    emit(f"{case}/submit", median([run.submit_rate for run in runs]), "jobs/s")
    emit(f"{case}/server-cpu", median([run.server_cpu_s / jobs for run in runs]) * 1e3, "ms/job")
    emit(f"{case}/load-generator-cpu", median([run.load_cpu_s / jobs for run in runs]) * 1e3, "ms/job")
    emit(f"{case}/other-load", median([run.other_cores for run in runs]), "cores")


# --- real agents ------------------------------------------------------------------------------------------------------


def local(options: Options, folder: Path) -> Local:
    """As many local nodes as AGENTS says, each with GPUS emulated GPUs."""
    begun = time.monotonic()
    found = Local(folder, options.count("AGENTS"), options.count("GPUS"))
    say(f"{options.count('AGENTS')} local agents ready after {time.monotonic() - begun:.1f} s")
    return found


def real(options: Options, figures: Figures, cluster: Local, submitters: Helper) -> None:
    """Submit to recorded end of real processes."""
    jobs, clients, agents = (options.count(name) for name in ("JOBS", "CLIENTS", "AGENTS"))
    case = f"real/agents={agents}/clients={clients}/jobs={jobs}"
    rates, waits, servers, daemons, machine = [], [], [], [], []
    for number in range(options.count("RUNS")):
        before = cluster.server_cpu_s(), cluster.agents_cpu_s(), busy_s(), time.monotonic()
        begun_us = time.time_ns() // 1000
        sent = submitters.ask(
            "submit",
            host=HOST,
            port=cluster.port,
            token=cluster.token,
            clients=clients,
            jobs=jobs,
            rate=0,
            prefix=f"real{number}",
            document=job_document("true", ["true"]),
        )
        wait_until_idle(cluster.client, DRAIN_S)
        wall_s = time.monotonic() - before[3]
        found = list(cluster.client.jobs(most=jobs))
        check_jobs(found, [job for job, _, _ in sent["rows"]], "succeeded")
        ends = [micros_of(job.ended_at) for job in found if job.ended_at is not None]
        rates.append(jobs / (max(ends) - begun_us) * 1e6)
        waits.append([_between(job.submitted_at, job.ended_at) for job in found])
        servers.append((cluster.server_cpu_s() - before[0]) / jobs * 1e3)
        daemons.append((cluster.agents_cpu_s() - before[1]) / jobs * 1e3)
        machine.append((busy_s() - before[2]) / wall_s)
        say(
            f"{case} run {number + 1}: {rates[-1]:.0f} ends/s, server {servers[-1]:.2f} ms/job, agents' daemons "
            f"{daemons[-1]:.2f} ms/job, machine {machine[-1]:.2f} cores busy"
        )
    figures.emit(f"{case}/submit-to-end", median(rates), "jobs/s", SLURM_JOBS)
    figures.emit(f"{case}/submit-to-end/min", min(rates), "jobs/s", SLURM_JOBS)
    figures.emit(f"{case}/submit-to-end/max", max(rates), "jobs/s", SLURM_JOBS)
    for name in (50, 99):
        figures.emit(f"{case}/submit-to-end/p{name}", median([percentile(w, name) for w in waits]) * 1e3, "ms")
    figures.emit(f"{case}/server-cpu", median(servers), "ms/job")
    figures.emit(f"{case}/agent-daemons-cpu", median(daemons), "ms/job")
    figures.emit(f"{case}/machine-busy", median(machine), "cores")
    figures.emit(f"{case}/agent-daemon-memory", cluster.agents_pss_mb(), "MB")


def _between(first: datetime | None, last: datetime | None) -> float:
    """Seconds between two times of the ledger."""
    assert first is not None
    assert last is not None
    return (last - first).total_seconds()


def gang(options: Options, figures: Figures, cluster: Local) -> None:
    """Submit to running of a gang over many nodes: every node has started its part."""
    nodes, gpus = options.count("NODES"), options.count("GPUS")
    for ranks in dict.fromkeys((1, gpus)):
        case = f"gang/nodes={nodes}/gpus={nodes * gpus}/ranks={nodes * ranks}"
        kind: dict[str, object] = {"launch": {"kind": "launcher"}} if ranks == 1 else {"tasks_per_node": ranks}
        document = job_document(
            "gang", ["sleep", "3600"], nodes=nodes, per_node={"gpus": gpus}, time_limit="1h", **kind
        )
        times = [one_gang(cluster.client, document) for _ in range(GANGS)]
        say(f"{case}: {', '.join(f'{each:.3f}' for each in times)} s")
        figures.emit(f"{case}/submit-to-running", median(times), "s", SLURM_GANG_S)
        figures.emit(f"{case}/submit-to-running/min", min(times), "s", SLURM_GANG_S)
        figures.emit(f"{case}/submit-to-running/max", max(times), "s", SLURM_GANG_S)


def one_gang(client: Client, document: dict[str, object]) -> float:
    """Seconds from the request until a client that watches the job is told that it runs; the gang is ended again."""
    begun = time.monotonic()
    made = client.submit(document)
    for seen in client.watch(made.id, DRAIN_S):
        if seen.state == "running":
            took = time.monotonic() - begun
            assert seen.attempt is not None
            if any(part.state != "started" for part in seen.attempt.parts):
                raise Failed(f"job {made.id} is called running before every node has started its part")
            client.cancel(made.id, "measured", now=True)
            client.wait(made.id, DRAIN_S)
            return took
        if seen.ended:
            raise Failed(f"the gang has ended before it ran: {seen.why}")
    raise Failed(f"the gang does not run after {DRAIN_S:g} s")


if __name__ == "__main__":
    common.run(main)
