"""A second controller takes the ledger while the first one runs: the older stops, agents go on with the new one."""

from __future__ import annotations

import signal
import time

import pytest

from orchestrator.client import Client
from orchestrator.model.errors import GanglineError
from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster, contacts, pids_of
from tests.system.processes import alive
from tests.system.verify import check_one_attempt_each
from tests.system.workload import Work, gang, single

pytestmark = pytest.mark.system

STOPS_S = 10.0  # for an older controller to notice, however idle it is


def take_over(cluster: Cluster) -> None:
    """Start another controller, and wait until it answers."""
    cluster.others.append(cluster.controller)
    cluster.controller = cluster.another_controller()
    cluster.controller.log = cluster.folder / "second.log"
    cluster.controller.start(cold=True).ready()


def older_stopped(cluster: Cluster) -> None:
    """It ended by itself, said why in one sentence, and no traceback."""
    old = cluster.others[-1]
    assert old.process.wait("a newer controller took over", STOPS_S) == 1
    words = old.last_words(1000)
    assert "[ledger.fenced]" in words or "[controller.fenced]" in words, words
    assert "Traceback" not in words


def test_the_older_stops_and_no_job_is_disturbed(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.controller.process.kill()
    cluster.restart(cold=True)
    gate = cluster.gate()
    running = cluster.submit("running", Work(gate=gate), gang())
    pids = pids_of(cluster.running(running))
    with cluster.connect(0) as old_client:
        assert old_client.status().epoch
        take_over(cluster)
        older_stopped(cluster)
        served = [
            _epoch(old_client) for _ in range(2)
        ]  # its connection is gone; the next one finds the new controller
    assert served[-1] == cluster.client.status().epoch
    assert all(alive(pid) for pid in pids)
    after = cluster.submit("after", Work(), gang())
    cluster.succeeded(after)
    assert pids_of(cluster.job(running)) == pids
    gate.open()
    for job in cluster.succeeded(running, after):
        cluster.check_logs(job)
    check_one_attempt_each(cluster.finish())


def _epoch(client: Client) -> int:
    try:
        return client.status().epoch
    except GanglineError:
        return 0


def test_an_idle_older_controller_notices_too(cluster: Cluster) -> None:
    """Nobody writes to it, and agents wait at it for news that the new one has: it must look by itself."""
    take_over(cluster)
    began = time.monotonic()
    cluster.succeeded(cluster.submit("after", Work(), single(4)))
    older_stopped(cluster)
    assert time.monotonic() - began < STOPS_S
    assert set(contacts(cluster).values()) == {"ok"}
    cluster.finish()


def test_an_older_one_that_was_stopped_meanwhile(cluster: Cluster) -> None:
    """It wakes up in a world that has gone on without it, and ends before it does anything."""
    gate = cluster.gate()
    running = cluster.submit("running", Work(gate=gate), gang())
    pids = pids_of(cluster.running(running))
    cluster.controller.process.send(signal.SIGSTOP)
    take_over(cluster)
    cluster.reconnect()
    before = cluster.submit("before", Work(), gang())
    cluster.others[-1].process.send(signal.SIGCONT)
    older_stopped(cluster)
    cluster.succeeded(before, cluster.submit("after", Work(), gang()))
    assert pids_of(cluster.job(running)) == pids
    gate.open()
    cluster.succeeded(running)
    check_one_attempt_each(cluster.finish())


def test_whoever_the_older_one_answers_has_the_answer_kept(cluster: Cluster) -> None:
    """Submits go on to whichever controller answers while one takes over from another, again and again."""
    gate = cluster.gate()
    jobs = [cluster.submit("endless", Work(gate=gate), gang(tasks=1, gpus=1))]
    for turn in range(3):
        old = cluster.controller
        cluster.others.append(old)
        cluster.controller = cluster.another_controller().start()
        number = 0
        while not cluster.controller.answers():
            jobs.append(cluster.submit(f"job-{turn}-{number}"))
            number += 1
        jobs.append(cluster.submit(f"job-{turn}-after"))
        assert old.process.wait("a newer controller took over", STOPS_S) == 1
    gate.open()
    cluster.succeeded(*jobs)
    check_one_attempt_each(cluster.finish())
