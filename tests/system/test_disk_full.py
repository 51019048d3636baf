"""Full disks, under the ledger and under an agent: clear errors, nothing lost, and work goes on when there is room."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.client import Client
from orchestrator.model.errors import GanglineError, Unavailable
from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster, pids_of
from tests.system.processes import alive, until
from tests.system.verify import check_one_attempt_each
from tests.system.workload import Work, gang, single

pytestmark = [pytest.mark.system, pytest.mark.needs("root", "tmpfs")]

LEDGER_KIB = 6_000
AGENT_KIB = 4_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; the test says how small by `remount`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={LEDGER_KIB}k", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


class Ballast:
    """A file that takes all room there is."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "ballast"

    def fill(self) -> None:
        """Until not a byte fits."""
        with self._path.open("ab", buffering=0) as file:
            for size in (65536, 4096, 512, 64, 1):
                _write_till_full(file.fileno(), size)

    def drop(self) -> None:
        """Give it all back."""
        self._path.unlink()


def _write_till_full(fd: int, size: int) -> None:
    try:
        while True:
            os.write(fd, bytes(size))
    except OSError as error:
        assert error.errno == errno.ENOSPC  # noqa: PT017 - any other error must show


@contextmanager
def impatient(cluster: Cluster) -> Iterator[Client]:
    """A client that takes the first answer."""
    with cluster.connect(0) as client:
        yield client


def refusal(cluster: Cluster, name: str) -> GanglineError:
    """What a submit is told."""
    with impatient(cluster) as client, pytest.raises(Unavailable) as caught:
        client.submit(cluster.document(name, Work()), name)
    return caught.value


def test_full_disk_under_the_ledger(make_cluster: MakeCluster, small_disk: Path) -> None:
    cluster = make_cluster(state=small_disk / "s")
    ballast = Ballast(small_disk)
    gate = cluster.gate()
    before = [cluster.submit(f"before-{k}") for k in range(5)]
    running = cluster.submit("running", Work(lines=30, gate=gate), gang())
    ends = cluster.submit("ends", Work(lines=30, gate=cluster.gate()), gang())
    pids = pids_of(cluster.running(running))
    cluster.running(ends)
    cluster.succeeded(*before)
    ballast.fill()
    accepted = fill_ledger(cluster)
    told = refusal(cluster, "refused")
    assert told.code == "ledger.disk-full"
    assert str(small_disk / "s" / "ledger.db") in told.message
    assert told.hint
    cluster.gates[1].open()  # an end that the ledger can't take in yet
    until(lambda: not processes_of(cluster, ends), "the other gang has ended on its nodes")
    with impatient(cluster) as client:
        assert client.job(running).state == "running"
        assert {client.job(job).state for job in before} == {"succeeded"}
        assert client.job(ends).state == "running"
    assert all(alive(pid) for pid in pids)
    assert cluster.controller.process.code() is None
    ballast.drop()
    cluster.succeeded(ends, *accepted, cluster.submit("refused"))
    assert pids_of(cluster.job(running)) == pids
    gate.open()
    for job in cluster.succeeded(running, ends):
        cluster.check_logs(job)
    check_one_attempt_each(cluster.finish())


def fill_ledger(cluster: Cluster) -> list[int]:
    """Submit until the room that the ledger's files have still inside is used up; what was accepted."""
    accepted: list[int] = []

    def refused() -> bool:
        name = f"fill-{len(accepted)}"
        with impatient(cluster) as client:
            try:
                job = client.submit(cluster.document(name, Work()), name).id
            except Unavailable:
                return True
        cluster.acknowledged[name] = job
        cluster.work[job] = Work()
        accepted.append(job)
        return False

    until(refused, "a submit is refused")
    return accepted


def processes_of(cluster: Cluster, job: int) -> list[int]:
    """Living ranks of a job, by the traces that they have left."""
    return [
        trace.pid
        for trace in cluster.traces()
        if trace.job == job and trace.what == "start" and alive(trace.pid)
    ]


def test_a_controller_that_is_killed_on_a_full_disk_comes_back(
    make_cluster: MakeCluster, small_disk: Path
) -> None:
    cluster = make_cluster(state=small_disk / "s")
    ballast = Ballast(small_disk)
    gate = cluster.gate()
    running = cluster.submit("running", Work(gate=gate), gang())
    pids = pids_of(cluster.running(running))
    ballast.fill()
    fill_ledger(cluster)
    cluster.controller.process.kill()
    cluster.controller.start(cold=True)
    assert cluster.controller.process.wait("there is no room to start in") == 1
    assert "[ledger.disk-full]" in cluster.controller.last_words(4)
    assert "Traceback" not in cluster.controller.last_words(100)
    ballast.drop()
    cluster.restart()
    cluster.succeeded(*(job for name, job in cluster.acknowledged.items() if name != "running"))
    assert pids_of(cluster.job(running)) == pids
    gate.open()
    cluster.succeeded(running)
    cluster.finish()


def test_full_disk_under_an_agent(make_cluster: MakeCluster, small_disk: Path) -> None:
    """Its outbox, its plans and its records of units are there: what runs goes on, what ends is told later.

    A failure's record carries the end of the output, more than the room that a file's last page may have left.
    """
    cluster = make_cluster(nodes=1, agent={"state_dir": str(small_disk)})
    ballast = Ballast(small_disk)
    agent = cluster.agents["n1"]
    gate, other = cluster.gate(), cluster.gate()
    output = {"output": f"{cluster.folder}/%j-%t.out"}  # the job's own disk has room
    running = cluster.submit("running", Work(gate=gate), single(2), **output)
    ends = cluster.submit("ends", Work(lines=200, gate=other, code=3), single(2), **output)
    pids = pids_of(cluster.running(running))
    cluster.running(ends)
    ballast.fill()
    other.open()
    until(lambda: not processes_of(cluster, ends), "the other job's ranks have ended")
    waits = cluster.submit("waits", Work(), single(), **output)
    until(lambda: "No space left on device" in agent.log_text(), "the agent says that its disk is full")
    assert cluster.job(waits).attempt is not None
    assert (cluster.job(ends).state, cluster.job(waits).state) == ("running", "starting")
    assert all(alive(pid) for pid in pids)
    agent.process.kill()
    agent.start()
    until(lambda: agent.log_text().count("No space left on device") >= 1, "the next one says so too")
    ballast.drop()
    if agent.process.code() is not None:  # it may refuse to start without room, with a word about it
        assert "Traceback" not in agent.log_text()
        agent.start()
    cluster.succeeded(waits)
    ended = cluster.ended(ends)
    assert (ended.state, ended.exit_code) == ("failed", 3)
    first = ended.past[-1].first_failed
    assert first is not None
    assert first.tail.endswith(f"{ends}/1 rank {first.rank} line 200 of 200\n")
    assert pids_of(cluster.job(running)) == pids
    gate.open()
    cluster.succeeded(running)
    check_one_attempt_each(cluster.finish())
