"""One gang of sixteen over two nodes that sums vectors in a ring: stopped, continued, killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from orchestrator.agent import procfs
from orchestrator.cli import demo_ring
from orchestrator.wire import api as wire
from tests.system.harness import Cluster, pids_of, tell
from tests.system.processes import Held, until
from tests.system.workload import gang, job_document

pytestmark = pytest.mark.system

END_S = 2.0  # from the first death to the last one's, over all nodes
STILL_S = 1.0  # without progress: a round takes a hundredth of it


def ring(cluster: Cluster) -> wire.Job:
    """The demo's ring without an end, once it has summed a few rounds."""
    command = [sys.executable, "-I", str(Path(demo_ring.__file__)), "--mib", "0.01", "--rounds", "0"]
    document = job_document("ring", **gang(tasks=8, gpus=8), command=command)
    job = cluster.running(cluster.submit_document(document))
    until(lambda: rounds(cluster, job.id) >= 10, "ten rounds are summed")
    return job


def rounds(cluster: Cluster, job: int) -> int:
    """The last round that rank 0 has told."""
    lines = cluster.client.logs(job, 0, limit=1 << 20).data.decode().splitlines()
    return int(lines[-1].split()[1].rstrip(":")) if lines else 0


def test_sixteen_pids_under_two_shepherds(cluster: Cluster) -> None:
    job = ring(cluster)
    pids = pids_of(job)
    assert len(set(pids)) == 16
    assert job.attempt is not None
    assert [(part.node, len(part.pids), part.first_rank) for part in job.attempt.parts] == [
        ("n1", 8, 0),
        ("n2", 8, 8),
    ]
    for part in job.attempt.parts:
        shepherd = cluster.agents[part.node].shepherd(job.id)
        assert {stat.parent for pid in part.pids if (stat := procfs.stat(pid))} == {shepherd}
        assert name_of(shepherd) == "gl-shepherd"
    cluster.client.cancel(job.id)
    assert cluster.ended(job.id).state == "cancelled"
    cluster.finish()


def name_of(pid: int) -> str:
    """What `ps` calls it."""
    found = procfs.stat(pid)
    return found.name if found is not None else ""


def state_of(pid: int) -> str:
    """As `ps` shows it: T for stopped."""
    found = procfs.stat(pid)
    return found.state if found is not None else ""


@pytest.mark.parametrize("rank", [0, 11])
def test_a_stopped_rank_stops_the_sum_and_goes_on(cluster: Cluster, rank: int) -> None:
    job = ring(cluster)
    pid = pids_of(job)[rank]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", f"rank {rank} is stopped")
    until(lambda: settled(cluster, job.id), "no round comes any more")
    before = rounds(cluster, job.id)
    assert cluster.job(job.id).state == "running"
    os.kill(pid, signal.SIGCONT)
    until(lambda: rounds(cluster, job.id) >= before + 20, "the sum goes on")
    cluster.client.cancel(job.id)
    assert cluster.ended(job.id).state == "cancelled"
    cluster.finish()


def settled(cluster: Cluster, job: int) -> bool:
    """Whether no round is told for a while."""
    before = rounds(cluster, job)
    time.sleep(STILL_S)  # that nothing happens can only be seen by looking for a while
    return rounds(cluster, job) == before


@pytest.mark.parametrize("rank", [3, 12])
def test_a_killed_rank_ends_all_sixteen_and_is_named(cluster: Cluster, rank: int) -> None:
    job = ring(cluster)
    held = Held(pids_of(job))
    os.kill(pids_of(job)[rank], signal.SIGKILL)
    took = held.gone(END_S)
    held.close()
    tell(f"from the kill of rank {rank} to the last of 16 gone: {took:.3f} s")
    ended = cluster.ended(job.id)
    node = "n1" if rank < 8 else "n2"
    assert (ended.state, ended.exit_code) == ("failed", 128 + signal.SIGKILL)
    assert ended.why == f"rank {rank} on {node} failed first, by signal 9"
    first = ended.past[-1].first_failed
    assert first is not None
    assert (first.rank, first.node, first.signal, first.exit_code) == (rank, node, 9, 137)
    cluster.finish()


def test_ranks_that_ignore_the_signal_are_gone_in_time_too(cluster: Cluster) -> None:
    """The others are asked first, and killed after a second's grace."""
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    job = cluster.running(
        cluster.submit_document(job_document("deaf", **gang(tasks=8, gpus=8), command=script))
    )
    for rank in range(16):
        assert cluster.client.logs(job.id, rank, wait_s=30).data == b"ready\n"
    held = Held(pids_of(job))
    os.kill(pids_of(job)[9], signal.SIGKILL)
    took = held.gone(END_S)
    held.close()
    tell(f"deaf ranks, from the kill to the last of 16 gone: {took:.3f} s")
    assert cluster.ended(job.id).why == "rank 9 on n2 failed first, by signal 9"
    cluster.finish()
