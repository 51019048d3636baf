"""`make bench-rate`: jobs a second through the whole path, and how soon a large gang runs.

Comes in: BENCH_CASE (emulated, wide, real, gang; all), BENCH_JOBS, BENCH_CLIENTS, BENCH_AGENTS, BENCH_GPUS (of a node),
BENCH_RUNS, BENCH_NODES (of the gang) and BENCH_GANGS, BENCH_WIDE (nodes of the widest gang). Goes out: figures as JSON
lines. Called by: the Makefile. docs/benchmarks.md says what each figure is and how it is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from orchestrator.client import Client
from orchestrator.wire.api import JobSummary, micros_of
from tests.bench import common
from tests.bench.account import Account, Meter
from tests.bench.common import Failed, Figures, Options, busy_s, median, percentile, say, workplace
from tests.bench.helper import Helper, Plain
from tests.bench.local import Local
from tests.bench.server import HOST, Server, check_jobs, job_document, wait_until_idle

CASES = ("emulated", "wide", "real", "gang")
DRAIN_S = 120.0
# Slurm 22.05 with 40 slurmd on one machine of 2 cores: 3,000 array tasks of `true` with one GPU each in 35.7 s; a gang
# of 32 nodes with 8 GPUs each from submit to running in 2.1 s.
SLURM_JOBS = 84.0
SLURM_GANG_S = 2.1


def main() -> None:
    """Measure what CASE names."""
    options = Options(CASE="", JOBS=3000, CLIENTS=8, AGENTS=40, GPUS=8, NODES=32, WIDE=512, GANGS=7, RUNS=3)
    cases = options.cases(CASES)
    if "gang" in cases and options.count("NODES") > options.count("AGENTS"):
        common.refuse("NODES: a gang has at most as many nodes as there are AGENTS")
    with workplace() as folder:
        figures = Figures("rate", folder)
        if "emulated" in cases:
            emulated(options, figures, folder / "emulated")
        if "wide" in cases:
            wide(options, figures, folder / "wide")
        if "real" in cases or "gang" in cases:
            nodes, gpus = options.count("AGENTS"), options.count("GPUS")
            with Account() as account, Local(folder / "l", nodes, gpus) as cluster:
                if "real" in cases:
                    real(options, figures, cluster, account)
                if "gang" in cases:
                    gang(options, figures, cluster, account)


def ask_for_jobs(port: int, token: str, options: Options, prefix: str) -> Plain:
    """What the submitters are told: JOBS times `true` with one GPU, from CLIENTS connections in a closed loop."""
    return {
        "host": HOST,
        "port": port,
        "token": token,
        "clients": options.count("CLIENTS"),
        "jobs": options.count("JOBS"),
        "rate": 0,
        "prefix": prefix,
        "document": job_document("true", ["true"]),
    }


def emit_rates(figures: Figures, case: str, rates: list[float], published: float | None = None) -> None:
    """The median of the runs, the slowest and the quickest."""
    figures.emit(case, median(rates), "jobs/s", published)
    figures.emit(f"{case}/min", min(rates), "jobs/s", published)
    figures.emit(f"{case}/max", max(rates), "jobs/s", published)


def emit_times(figures: Figures, case: str, runs: list[list[float]]) -> None:
    """The median over the runs of each percentile; times in seconds."""
    for percent in (50, 99):
        figures.emit(f"{case}/p{percent}", median([percentile(run, percent) for run in runs]) * 1e3, "ms")


# --- emulated agents --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emulated:
    """One run with emulated agents: rates in jobs a second, times in seconds, processor time in seconds a job."""

    submit_rate: float
    start_rate: float
    submit_s: list[float]
    start_s: list[float]
    server_cpu_s: float
    load_cpu_s: float
    other_cores: float


def emulated(options: Options, figures: Figures, folder: Path) -> None:
    """Submit to acknowledged start, with agents that cost the server what real ones do, and the machine little."""
    folder.mkdir()
    agents = options.count("AGENTS")
    case = f"emulated/agents={agents}/clients={options.count('CLIENTS')}/jobs={options.count('JOBS')}"
    runs: list[Emulated] = []
    with Server(folder) as server, Helper("emulated") as fleet, Helper("submitters") as submitters:
        server.populate(fleet, agents, options.count("GPUS"))
        for number in range(options.count("RUNS")):
            run = one_emulated(options, server, fleet, submitters, f"run{number}")
            say(
                f"{case}: run {number + 1}: {run.start_rate:.0f} starts/s, {run.submit_rate:.0f} submits/s, "
                f"server {run.server_cpu_s * 1e3:.2f} ms of CPU a job, other load {run.other_cores:.2f} cores"
            )
            runs.append(run)
    emit_rates(figures, f"{case}/submit-to-start", [run.start_rate for run in runs])
    emit_times(figures, f"{case}/submit-to-start", [run.start_s for run in runs])
    figures.emit(f"{case}/submit", median([run.submit_rate for run in runs]), "jobs/s")
    emit_times(figures, f"{case}/submit", [run.submit_s for run in runs])
    figures.emit(f"{case}/server-cpu", median([run.server_cpu_s for run in runs]) * 1e3, "ms/job")
    figures.emit(f"{case}/load-generator-cpu", median([run.load_cpu_s for run in runs]) * 1e3, "ms/job")
    figures.emit(f"{case}/other-load", median([run.other_cores for run in runs]), "cores")


def one_emulated(
    options: Options, server: Server, fleet: Helper, submitters: Helper, prefix: str
) -> Emulated:
    """Submit all jobs, and wait until the start of each has been acknowledged to its agent."""
    jobs = options.count("JOBS")
    server_s, load_s, busy = server.cpu_s(), fleet.cpu_s() + submitters.cpu_s(), busy_s()
    begun_s = time.monotonic()
    submitters.tell("submit", **ask_for_jobs(server.port, server.token, options, prefix))
    starts = fleet.ask("wait_started", count=jobs, timeout_s=DRAIN_S)
    sent = submitters.hear()
    wall_s = time.monotonic() - begun_s
    server_s, load_s = server.cpu_s() - server_s, fleet.cpu_s() + submitters.cpu_s() - load_s
    other = (busy_s() - busy - server_s - load_s) / wall_s
    if starts["wrong"] or sent["repeats"]:
        raise Failed(f"{sent['repeats']} submits were sent again; {starts['wrong']}")
    wait_until_idle(server.client, DRAIN_S)
    sent_at: dict[int, int] = {job: at for job, at, _ in sent["rows"]}
    started_at: dict[int, int] = dict(starts["started"])
    if sent_at.keys() != started_at.keys():
        raise Failed(f"{len(sent_at)} jobs were submitted, and {len(started_at)} starts acknowledged")
    check_jobs(list(server.client.jobs(most=jobs)), list(sent_at), "succeeded")
    acknowledged_at = [at for _, _, at in sent["rows"]]
    return Emulated(
        submit_rate=jobs / (max(acknowledged_at) - sent["begun"]) * 1e9,
        start_rate=jobs / (max(started_at.values()) - sent["begun"]) * 1e9,
        submit_s=[(acked - at) / 1e9 for _, at, acked in sent["rows"]],
        start_s=[(started_at[job] - at) / 1e9 for job, at in sent_at.items()],
        server_cpu_s=server_s / jobs,
        load_cpu_s=load_s / jobs,
        other_cores=other,
    )


def wide(options: Options, figures: Figures, folder: Path) -> None:
    """Submit to running of a gang over all of many emulated nodes: what the controller alone needs for it."""
    folder.mkdir()
    nodes, gpus = options.count("WIDE"), options.count("GPUS")
    case = f"wide/nodes={nodes}/gpus={nodes * gpus}/submit-to-running"
    document = gang_document(nodes, gpus, {"launch": {"kind": "launcher"}})
    with Server(folder) as server, Helper("emulated") as fleet:
        server.populate(fleet, nodes, gpus)
        server_s = server.cpu_s()
        times = [one_gang(server.client, document) for _ in range(options.count("RUNS"))]
        server_s = (server.cpu_s() - server_s) / len(times)
    say(f"{case}: {', '.join(f'{each:.3f}' for each in times)} s")
    emit_gangs(figures, case, times)
    figures.emit(f"{case}/server-cpu", server_s, "s/gang")


# --- real agents ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Real:
    """One run with real agents: jobs a second, seconds, processor seconds a job. None: nobody counts these here."""

    end_rate: float
    end_s: list[float]
    server_cpu_s: float
    agents_cpu_s: float
    all_cpu_s: float | None
    other_cores: float | None


def real(options: Options, figures: Figures, cluster: Local, account: Account) -> None:
    """Submit to recorded end of real processes."""
    agents = options.count("AGENTS")
    case = f"real/agents={agents}/clients={options.count('CLIENTS')}/jobs={options.count('JOBS')}"
    runs: list[Real] = []
    with Helper("submitters") as submitters:
        for number in range(options.count("RUNS")):
            run = one_real(options, cluster, submitters, account, f"run{number}")
            say(
                f"{case}: run {number + 1}: {run.end_rate:.0f} ends/s; CPU a job: server {run.server_cpu_s * 1e3:.2f}, "
                f"agents' daemons {run.agents_cpu_s * 1e3:.2f} ms{_all_told(run)}"
            )
            runs.append(run)
    emit_rates(figures, f"{case}/submit-to-end", [run.end_rate for run in runs], SLURM_JOBS)
    emit_times(figures, f"{case}/submit-to-end", [run.end_s for run in runs])
    figures.emit(f"{case}/server-cpu", median([run.server_cpu_s for run in runs]) * 1e3, "ms/job")
    figures.emit(f"{case}/agent-daemons-cpu", median([run.agents_cpu_s for run in runs]) * 1e3, "ms/job")
    figures.emit(f"{case}/agent-daemon-memory", cluster.agent_pss_mb(), "MB")
    everything = [run.all_cpu_s for run in runs if run.all_cpu_s is not None]
    others = [run.other_cores for run in runs if run.other_cores is not None]
    if everything:
        figures.emit(f"{case}/all-cpu", median(everything) * 1e3, "ms/job")
        figures.emit(f"{case}/other-load", median(others), "cores")


def _all_told(run: Real) -> str:
    if run.all_cpu_s is None or run.other_cores is None:
        return ""
    return f", all processes {run.all_cpu_s * 1e3:.2f} ms; other load {run.other_cores:.2f} cores"


def one_real(options: Options, cluster: Local, submitters: Helper, account: Account, prefix: str) -> Real:
    """Submit all jobs, and wait until the ledger has the end of each."""
    jobs = options.count("JOBS")
    server_s, agents_s = cluster.server_cpu_s(), cluster.agents_cpu_s()
    meter, begun_us = Meter(account), time.time_ns() // 1000
    sent = submitters.ask("submit", **ask_for_jobs(cluster.port, cluster.token, options, prefix))
    wait_until_idle(cluster.client, DRAIN_S)
    all_s, other_cores = meter.read()
    server_s, agents_s = cluster.server_cpu_s() - server_s, cluster.agents_cpu_s() - agents_s
    found = list(cluster.client.jobs(most=jobs))
    check_jobs(found, [job for job, _, _ in sent["rows"]], "succeeded")
    last_us = max(micros_of(job.ended_at) for job in found if job.ended_at is not None)
    return Real(
        end_rate=jobs / (last_us - begun_us) * 1e6,
        end_s=[_seconds(job.submitted_at, job.ended_at) for job in found],
        server_cpu_s=server_s / jobs,
        agents_cpu_s=agents_s / jobs,
        all_cpu_s=all_s / jobs if all_s is not None else None,
        other_cores=other_cores,
    )


def _seconds(first: datetime | None, last: datetime | None) -> float:
    """Seconds between two times of the ledger."""
    assert first is not None
    assert last is not None
    return (last - first).total_seconds()


# --- a gang -----------------------------------------------------------------------------------------------------------


def gang(options: Options, figures: Figures, cluster: Local, account: Account) -> None:
    """Submit to running of a gang over many nodes, by one process a node (as `torchrun` is) and by one a GPU."""
    nodes, gpus = options.count("NODES"), options.count("GPUS")
    for ranks, how in ((1, {"launch": {"kind": "launcher"}}), (gpus, {"tasks_per_node": gpus})):
        case = f"gang/nodes={nodes}/gpus={nodes * gpus}/processes={nodes * ranks}/submit-to-running"
        document = gang_document(nodes, gpus, how)
        meter = Meter(account)
        times = [one_gang(cluster.client, document) for _ in range(options.count("GANGS"))]
        _, other_cores = meter.read()
        say(f"{case}: {', '.join(f'{each:.3f}' for each in times)} s")
        emit_gangs(figures, case, times, SLURM_GANG_S)
        if other_cores is not None:
            figures.emit(f"{case}/other-load", other_cores, "cores")


def gang_document(nodes: int, gpus: int, how: Plain) -> Plain:
    """A gang with all GPUs of so many nodes, that runs until it is ended."""
    shape = {"nodes": nodes, "per_node": {"gpus": gpus}, "time_limit": "1h"}
    return job_document("gang", ["sleep", "3600"], **shape, **how)


def emit_gangs(figures: Figures, case: str, times: list[float], published: float | None = None) -> None:
    """The median, the quickest and the slowest start."""
    figures.emit(case, median(times), "s", published)
    figures.emit(f"{case}/min", min(times), "s", published)
    figures.emit(f"{case}/max", max(times), "s", published)


def one_gang(client: Client, document: Plain) -> float:
    """Seconds from the request until a client that watches the job is told that it runs; then the gang is ended."""
    begun_s = time.monotonic()
    made = client.submit(document)
    for seen in client.watch(made.id, DRAIN_S):
        if seen.state == "running":
            took_s = time.monotonic() - begun_s
            assert seen.attempt is not None
            if any(part.state != "started" for part in seen.attempt.parts):
                raise Failed(f"job {made.id} is called running before every node has started its part")
            client.cancel(made.id, "measured", now=True)
            _check_cancelled(client.wait(made.id, DRAIN_S))
            return took_s
        if seen.ended:
            raise Failed(f"the gang has ended before it ran: {seen.why}")
    raise Failed(f"the gang does not run after {DRAIN_S:g} s")


def _check_cancelled(job: JobSummary) -> None:
    if job.state != "cancelled" or job.attempts != 1:
        raise Failed(f"job {job.id} is {job.state} after {job.attempts} starts: {job.why}")


if __name__ == "__main__":
    common.run(main)
