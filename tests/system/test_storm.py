"""Hundreds of kill -9 of the controller at random moments, under hundreds of jobs a minute.

GANGLINE_STORM_KILLS and GANGLINE_STORM_SEED, if given, say how many and from which seed. Nearly all restarts are forks
of a process that has the modules loaded (`processes.warm`); every twenty-fifth is the whole command.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from orchestrator.client import Client
from orchestrator.client.follow import follow
from orchestrator.wire import api as wire
from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster, retried, tell
from tests.system.processes import until
from tests.system.verify import check_one_attempt_each
from tests.system.workload import Work, gang, single

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("GANGLINE_STORM_KILLS") or 200)
SEED = int(os.environ.get("GANGLINE_STORM_SEED") or 20)
JOBS_A_MINUTE = 500
LIFE_S = (0.05, 1.0)  # between the moment a controller answers and its death
COLD_EVERY = 25
SUBMITTERS = 8
REPEATED_EVERY, FOLLOWED_EVERY = 10, 40
DRAIN_S = 240.0

# Quick ones, some that talk for a second or two so that they live through kills, and gangs of both kinds.
KINDS = (
    (Work(lines=20), single(2)),
    (Work(lines=40, pause="0.3"), single(1)),
    (Work(lines=20), gang()),
    (Work(lines=30, pause="0.4"), gang(tasks=1, gpus=1)),
    (Work(lines=5), single(1)),
)


class Submitters:
    """Threads that keep the rate: job k is due k steps after the start, and is repeated under its key until it is
    acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: list[int] = []
        self.followed: dict[int, str] = {}
        self.errors: list[BaseException] = []
        self.over = threading.Event()
        self._next = 0
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._followers = ThreadPoolExecutor(4)
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(SUBMITTERS)]

    def __enter__(self) -> Submitters:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        with self.cluster.connect(0) as client:
            while not self.over.wait(self._due_in()):
                try:
                    self._submit(client)
                except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                    self.errors.append(error)
                    return

    def _due_in(self) -> float:
        return max(0.0, self._began + self._next * 60 / JOBS_A_MINUTE - time.monotonic())

    def _submit(self, client: Client) -> None:
        with self._lock:
            number = self._next
            self._next += 1
        work, shape = KINDS[number % len(KINDS)]
        name = f"job-{number}"
        document = self.cluster.document(name, work, shape)
        job = retried(lambda: client.submit(document, name).id, f"the acknowledgement of {name}", DRAIN_S)
        self.cluster.acknowledged[name] = job
        self.cluster.work[job] = work
        self.jobs.append(job)
        if number % REPEATED_EVERY == 0:
            again = retried(lambda: client.submit(document, name), f"a repeated {name}", DRAIN_S)
            assert (again.id, again.repeated) == (job, True), f"{name} made job {job}, and again {again}"
        if number % FOLLOWED_EVERY == 0:
            self._followers.submit(self._follow, job)

    def _follow(self, job: int) -> None:
        """What somebody sees who reads along while controllers come and go."""
        with self.cluster.connect(DRAIN_S) as client:
            pieces = list(follow(client, job, [0]))
        broken = [str(piece.error) for piece in pieces if piece.error is not None]
        self.followed[job] = "; ".join(broken) or b"".join(piece.data for piece in pieces).decode()

    def wait_followers(self) -> None:
        """Until all that were followed have been read to their end."""
        self._followers.shutdown(wait=True)


def storm(cluster: Cluster, kills: int) -> tuple[list[float], list[float]]:
    """Kill and start again; how long the warm and the cold starts took."""
    dice = random.Random(SEED)
    warm: list[float] = []
    cold: list[float] = []
    for number in range(kills):
        time.sleep(dice.uniform(*LIFE_S))  # the random moment
        cluster.controller.process.kill()
        is_cold = number % COLD_EVERY == COLD_EVERY - 1
        (cold if is_cold else warm).append(cluster.restart(cold=is_cold))
    return warm, cold


@contextmanager
def told(what: str) -> Iterator[None]:
    """Say how long something took; see `tell`."""
    began = time.monotonic()
    yield
    tell(f"{what}: {time.monotonic() - began:.1f} s")


def all_ended(cluster: Cluster, jobs: list[int]) -> dict[int, wire.JobSummary]:
    """Every job, once all are over."""

    def over() -> bool:
        counts = cluster.client.status().jobs
        return not (counts.waiting or counts.starting or counts.running or counts.ending)

    until(over, f"{len(jobs)} jobs are over", DRAIN_S, tick_s=0.2)
    return {job.id: job for job in cluster.client.jobs(states=["succeeded", "failed", "cancelled"])}


def check_outputs(cluster: Cluster, jobs: list[int]) -> int:
    """Every line of every rank, as `logs` gives it and as it lies on the node; how many there were."""
    with ThreadPoolExecutor(4) as readers:
        return sum(readers.map(lambda job: cluster.check_logs(cluster.client.job(job)), jobs))


def test_storm(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=4, gpus=16)
    with told(f"{KILLS} kills"), Submitters(cluster) as submitters:
        warm, cold = storm(cluster, KILLS)
    assert not submitters.errors
    with told("the rest of the jobs"):
        found = all_ended(cluster, submitters.jobs)
    assert sorted(found) == sorted(submitters.jobs)
    bad = [job.id for job in found.values() if (job.state, job.attempts) != ("succeeded", 1)]
    assert not bad, [(cluster.job(job).why, cluster.job(job).past) for job in bad[:5]]
    with told("reading all outputs"):
        lines = check_outputs(cluster, submitters.jobs)
    submitters.wait_followers()
    for job, text in submitters.followed.items():
        assert text == cluster.work[job].output(job, 1, 0), f"what a follower of job {job} saw"
    ledger = cluster.finish()
    check_one_attempt_each(ledger)
    tell(
        f"{len(submitters.jobs)} jobs, {len(ledger.events)} events, {lines} lines, "
        f"{len(submitters.followed)} read along; {starts('warm', warm)}; {starts('cold', cold)}"
    )


def starts(kind: str, took: list[float]) -> str:
    """How long starts took until the controller answered."""
    if not took:
        return f"no {kind} start"
    return f"{len(took)} {kind} starts: median {statistics.median(took):.3f} s, longest {max(took):.3f} s"
