"""`make bench-agents`: what thousands of beating agents cost the controller, and how soon they are back once it died.

Comes in: BENCH_AGENTS, BENCH_RATE (jobs a second), BENCH_SECONDS, BENCH_CLIENTS, BENCH_GPUS (of a node), BENCH_HELD
(jobs that run through the restart). Goes out: figures as JSON lines. Called by: the Makefile. docs/benchmarks.md says
what each figure is and how it is measured.
"""

from __future__ import annotations

import time

from tests.bench import common
from tests.bench.common import Failed, Figures, Options, busy_s, percentile, pss_mb, say, workplace
from tests.bench.helper import Helper, Plain, now_ns
from tests.bench.server import HOST, Server, check_jobs, job_document, wait_until_idle

DRAIN_S = 120.0
BACK_S = 120.0


def main() -> None:
    """Steady load first, then the restart."""
    options = Options(AGENTS=2000, RATE=100.0, SECONDS=60.0, CLIENTS=8, GPUS=8, HELD=500)
    agents = options.count("AGENTS")
    with workplace() as folder:
        figures = Figures("agents", folder)
        with Server(folder) as server, Helper("emulated") as fleet, Helper("submitters") as submitters:
            begun = time.monotonic()
            server.populate(fleet, agents, options.count("GPUS"))
            say(f"{agents} agents have joined after {time.monotonic() - begun:.1f} s")
            done = steady(options, figures, server, fleet, submitters)
            restart(options, figures, server, fleet, submitters, done)


def _submit(server: Server, submitters: Helper, jobs: int, clients: int, **more: object) -> None:
    submitters.tell(
        "submit", host=HOST, port=server.port, token=server.token, clients=clients, jobs=jobs, **more
    )


def steady(
    options: Options, figures: Figures, server: Server, fleet: Helper, submitters: Helper
) -> list[int]:
    """Jobs at a rate beside the beats: the server's processor time, and how soon jobs start. Returns the jobs."""
    agents, rate, seconds = options.count("AGENTS"), options.number("RATE"), options.number("SECONDS")
    jobs = int(rate * seconds)
    case = f"steady/agents={agents}/rate={rate:g}/seconds={seconds:g}"
    before = server.cpu_s(), fleet.cpu_s() + submitters.cpu_s(), busy_s(), time.monotonic()
    beats = fleet.ask("beats")["beats"]
    _submit(
        server,
        submitters,
        jobs,
        options.count("CLIENTS"),
        rate=rate,
        prefix="steady",
        document=job_document("true", ["true"]),
    )
    starts = fleet.ask("wait_started", count=jobs, timeout_s=seconds + DRAIN_S)
    sent = submitters.hear()
    wall_s = time.monotonic() - before[3]
    server_cores = (server.cpu_s() - before[0]) / wall_s
    load_cores = (fleet.cpu_s() + submitters.cpu_s() - before[1]) / wall_s
    other = (busy_s() - before[2]) / wall_s - server_cores - load_cores
    beats = fleet.ask("beats")["beats"] - beats
    if starts["wrong"] or len(starts["started"]) != jobs:
        raise Failed(f"{len(starts['started'])} of {jobs} jobs started; {starts['wrong']}")
    wait_until_idle(server.client, DRAIN_S)
    rows: list[list[int]] = sent["rows"]
    check_jobs(server.jobs(), [job for job, _, _ in rows], "succeeded")
    _emit_steady(figures, case, rows, dict(map(tuple, starts["started"])))
    figures.emit(f"{case}/rate", jobs / wall_s, "jobs/s")
    figures.emit(f"{case}/server-cpu", server_cores, "cores")
    figures.emit(f"{case}/load-generator-cpu", load_cores, "cores")
    figures.emit(f"{case}/other-load", other, "cores")
    figures.emit(f"{case}/answered-syncs", beats / wall_s, "1/s")
    figures.emit(f"{case}/server-memory", pss_mb(server.pid), "MB")
    return [job for job, _, _ in rows]


def _emit_steady(figures: Figures, case: str, rows: list[list[int]], started: dict[int, int]) -> None:
    starts = [(started[job] - due) / 1e6 for job, due, _ in rows]
    submits = [(acked - due) / 1e6 for _, due, acked in rows]
    for name in (50, 99):
        figures.emit(f"{case}/start/p{name}", percentile(starts, name), "ms")
        figures.emit(f"{case}/submit/p{name}", percentile(submits, name), "ms")
    figures.emit(f"{case}/start/max", max(starts), "ms")


def restart(
    options: Options, figures: Figures, server: Server, fleet: Helper, submitters: Helper, done: list[int]
) -> None:
    """kill -9 of the controller while jobs run; it starts again, and every agent comes back by itself."""
    agents, held = options.count("AGENTS"), options.count("HELD")
    case = f"restart/agents={agents}/running={held}"
    _submit(server, submitters, held, options.count("CLIENTS"), rate=0, prefix="held", document=_sleeping())
    fleet.ask("wait_started", count=held, timeout_s=DRAIN_S)
    running = [job for job, _, _ in submitters.hear()["rows"]]
    before = _running(server, running)
    epoch = server.client.status().epoch
    killed = now_ns()
    server.kill()
    server.start()
    answers = now_ns()
    back = fleet.ask("back", epoch=epoch, timeout_s=BACK_S)
    if len(back["back"]) != agents:
        raise Failed(f"{len(back['back'])} of {agents} agents are back after {BACK_S:g} s")
    _check_nothing_lost(server, back, before, running, epoch)
    _check_history(server, done)
    figures.emit(f"{case}/server-answers", (answers - killed) / 1e9, "s")
    figures.emit(f"{case}/half-back", (percentile(back["back"], 50) - killed) / 1e9, "s")
    figures.emit(f"{case}/all-back", (max(back["back"]) - killed) / 1e9, "s")


def _sleeping() -> dict[str, object]:
    return job_document("sleep", ["sleep", "3600"])


def _running(server: Server, jobs: list[int]) -> dict[int, tuple[object, int]]:
    """When each of these jobs has started, and how often. Failed if one does not run."""
    found = {job.id: job for job in server.client.jobs(states=("running",))}
    if found.keys() != set(jobs):
        raise Failed(f"{len(jobs)} jobs should run, and {len(found)} do")
    return {job.id: (job.started_at, job.attempts) for job in found.values()}


def _check_nothing_lost(
    server: Server, back: Plain, before: dict[int, tuple[object, int]], running: list[int], epoch: int
) -> None:
    """Every node in contact, every running job untouched: here, in the ledger, and on its node."""
    nodes = server.client.nodes()
    bad = [node.name for node in nodes if node.contact != "ok" or not node.open]
    if bad:
        raise Failed(f"{len(bad)} nodes are not in contact, {bad[0]} among them")
    if back["wrong"]:
        raise Failed(f"the controller asked for what it must not ask for: {back['wrong']}")
    if _running(server, running) != before or sorted(back["held"]) != sorted(running):
        raise Failed("a running job was started again or ended by the restart")
    lost = [job.id for job in server.client.jobs(states=("running",)) if job.lost]
    if lost or server.client.orphans():
        raise Failed(f"{len(lost)} jobs count as lost, {len(server.client.orphans())} as orphans")
    if server.client.status().epoch <= epoch:
        raise Failed("the new controller has no newer epoch")


def _check_history(server: Server, done: list[int]) -> None:
    """What had ended is still there."""
    ended = list(server.client.jobs(states=("succeeded", "failed", "cancelled")))
    check_jobs(ended, done, "succeeded")


if __name__ == "__main__":
    common.run(main)
