"""A host cut off for longer than every timeout while its controller is stopped too; and one that dies under a gang.

Ranks append their attempt and the time to a file on their own host. Afterwards no two attempts of one rank may overlap
in time, no job may be lost, and each must have exactly one end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from orchestrator.provision.local import LocalSite
from tests.testbed.bed import Bed, Host
from tests.testbed.lab import USER, Lab, until

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
LEASE_S = 5
TRACE = f"/home/{USER}/trace"
RANK = f"""
trap 'exit 0' TERM
for i in $(seq 1 $ROUNDS); do echo "$GANGLINE_JOB_ID $GANGLINE_ATTEMPT $RANK $(date +%s%N)" >> {TRACE}; sleep 0.2; done
"""


@pytest.fixture
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three hosts whose controller loses patience quickly."""
    made = Lab(testbed, testbed.fresh(3, "12", "13"), tmp_path_factory.mktemp("lab"))
    try:
        made.up().ok()
        made.restart_server("--lease", f"{LEASE_S}s")
        until(lambda: made.open_nodes() == ["h1", "h2", "h3"], "all nodes are open")
        yield made
    finally:
        made.stop()


def gang(lab: Lab, nodes: int, rounds: int, **rest: object) -> int:
    """A gang with one rank on each of some hosts that writes its trace for a while."""
    document = {
        "apiVersion": "gangline/v1",
        "kind": "Job",
        "metadata": {"name": "trace"},
        "spec": {
            "nodes": nodes,
            "tasks_per_node": 1,
            "per_node": {"gpus": 8},
            "workdir": f"/home/{USER}",
            "env": {"ROUNDS": str(rounds)},
            "command": ["sh", "-c", RANK],
            "retries": {"node_failure": 3},
            **rest,
        },
    }
    return lab.submit(document)


def traces(hosts: list[Host]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """By job and rank: (attempt, nanoseconds) of each line, in the order of time."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for host in hosts:
        for line in host.inside(f"cat {TRACE} 2>/dev/null || true").check().splitlines():
            job, attempt, rank, at = (int(word.rpartition("/")[2]) for word in line.split())
            found.setdefault((job, rank), []).append((attempt, at))
    return {key: sorted(rows, key=lambda row: row[1]) for key, rows in found.items()}


def assert_no_overlap(hosts: list[Host]) -> None:
    """Attempts of a rank follow each other: once the next one writes, the one before never does."""
    for key, rows in traces(hosts).items():
        attempts = [attempt for attempt, _ in rows]
        assert attempts == sorted(attempts), f"job and rank {key} ran twice at once: {attempts}"


def test_cut_off_for_longer_than_every_timeout(lab: Lab) -> None:
    """Both kinds of absence in one: the host's network, then the controller's process."""
    cut = lab.hosts[1]
    wide, small = gang(lab, 2, 150), gang(lab, 1, 150)
    until(lambda: all(lab.job(each).state == "running" for each in (wide, small)), "both run")
    names = lab.job(wide).node_names
    victim = cut if cut.name in names else next(host for host in lab.hosts if host.name in names)
    victim.cut()
    until(lambda: lab.node(victim.name).contact == "unreachable", "the host is given up hope for")
    assert lab.job(wide).state == "running", "silence ends nothing"
    server = LocalSite(lab.state).server()
    assert server is not None
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(3 * LEASE_S)  # the span that this test is about: longer than every timeout
    os.kill(server.pid, signal.SIGCONT)
    victim.heal()
    until(lambda: lab.node(victim.name).contact == "ok", "the host is back by itself")
    for each in (wide, small):
        until(lambda each=each: lab.job(each).ended, f"job {each} ends")  # type: ignore[misc]
        ended = lab.job(each)
        assert ended.state == "succeeded", ended
        assert ended.attempts == 1, "nothing had to start again"
    assert_no_overlap(lab.hosts)
    assert lab.open_nodes() == ["h1", "h2", "h3"]


def test_a_host_killed_under_a_gang(lab: Lab) -> None:
    """The whole gang waits again, the first failure is named, and it runs to its end on what is left."""
    job = gang(lab, 2, 60)
    until(lambda: lab.job(job).state == "running", "it runs")
    names = lab.job(job).node_names
    victim = next(host for host in lab.hosts if host.name == names[1])
    victim.hang()  # all at once, as a power cut: else its agent may live long enough to tell of the rank's death
    victim.kill()
    until(lambda: lab.node(victim.name).contact == "unreachable", "the host is silent")
    assert lab.job(job).attempts == 1, "a silent host may still run its share"
    victim.boot()
    until(lambda: lab.job(job).ended, "it ends")
    ended = lab.job(job)
    assert (ended.state, ended.attempts) == ("succeeded", 2)
    first = ended.past[0]
    assert first.cause == "node_failed"
    assert victim.name in first.detail
    assert_no_overlap(lab.hosts)
