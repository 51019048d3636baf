"""A host cut off for longer than every timeout while its controller is stopped too; and one that dies under a gang.

Ranks append their attempt and the time to a file in a folder that all hosts share. Afterwards no two attempts of one
rank may overlap in time, no job may be lost, and each must have exactly one end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.provision.local import LocalSite
from tests.system.verify import Ledger, check_histories, read_ledger
from tests.testbed.bed import Bed
from tests.testbed.lab import USER, Lab, until
from tests.testbed.machine import SHARED

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
LEASE_S = 5
# Until it is told to end, however long the machine takes for what the test does meanwhile.
RANK = """
trap 'exit 0' TERM
until test -e $END; do echo "$GANGLINE_JOB_ID $GANGLINE_ATTEMPT $RANK $(date +%s%N)" >> $TRACE; sleep 0.2; done
"""


@pytest.fixture(scope="module")
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three hosts whose controller loses patience quickly."""
    made = Lab(testbed, testbed.fresh(3, "12", "13", furnished=True), tmp_path_factory.mktemp("lab"))
    try:
        made.up().ok()
        made.restart_server("--lease", f"{LEASE_S}s")
        until(lambda: made.open_nodes() == ["h1", "h2", "h3"], "all nodes are open")
        yield made
    finally:
        made.stop()


def trace(lab: Lab) -> Path:
    """What all ranks of all attempts write to."""
    return lab.bed.shared / "trace"


@pytest.fixture(autouse=True)
def _empty(lab: Lab) -> None:
    """Nothing is traced yet, and nobody told to end."""
    end(lab).unlink(missing_ok=True)
    trace(lab).unlink(missing_ok=True)
    trace(lab).touch()
    trace(lab).chmod(0o666)


def end(lab: Lab) -> Path:
    """Once it is there, all ranks end well."""
    return lab.bed.shared / "end"


def gang(lab: Lab, nodes: int, gpus: int = 8, **rest: object) -> int:
    """A gang with one rank on each of some hosts that writes its trace until the end."""
    document = {
        "apiVersion": "gangline/v1",
        "kind": "Job",
        "metadata": {"name": "trace"},
        "spec": {
            "nodes": nodes,
            "tasks_per_node": 1,
            "per_node": {"gpus": gpus},
            "workdir": f"/home/{USER}",
            "env": {"END": f"{SHARED}/end", "TRACE": f"{SHARED}/trace"},
            "command": ["sh", "-c", RANK],
            "retries": {"node_failure": 5},
            **rest,
        },
    }
    return lab.submit(document)


def traces(lab: Lab) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """By job and rank: (nanoseconds, attempt) of each line, in the order of time."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for line in trace(lab).read_text().splitlines():
        job, attempt, rank, at = (int(word.rpartition("/")[2]) for word in line.split())
        found.setdefault((job, rank), []).append((at, attempt))
    return {key: sorted(rows) for key, rows in found.items()}


def one_after_the_other(lab: Lab, *jobs: int) -> Ledger:
    """Attempts of a rank follow each other: once the next one writes, the one before never does. Each attempt and each
    job has exactly one end in the ledger."""
    found = traces(lab)
    assert {job for job, _ in found} == set(jobs)
    for key, rows in found.items():
        attempts = [attempt for _, attempt in rows]
        assert attempts == sorted(attempts), f"job and rank {key} ran twice at once: {attempts}"
    ledger = read_ledger(lab.state)
    assert set(ledger.histories) >= set(jobs)
    check_histories(ledger.histories.values())
    return ledger


def test_cut_off_for_longer_than_every_timeout(lab: Lab) -> None:
    """Both kinds of absence in one: the host's network, then the controller's process. On the host are a gang that
    waits for proof, and a job that ends with its lease and starts elsewhere while the host can't be asked."""
    wide, fenced = gang(lab, 2, 4), gang(lab, 1, 4, on_lost="self_fence")
    until(lambda: all(lab.job(each).state == "running" for each in (wide, fenced)), "both run")
    (name,) = lab.job(fenced).node_names
    assert name in lab.job(wide).node_names, "best fit puts it where half of the GPUs are in use"
    victim = next(host for host in lab.hosts if host.name == name)
    victim.cut()
    until(lambda: lab.node(name).contact == "unreachable", "the host is given up hope for")
    until(lambda: lab.job(fenced).attempts == 2 and lab.job(fenced).state == "running", "it runs elsewhere")
    assert lab.job(fenced).node_names != [name]
    assert (lab.job(wide).state, lab.job(wide).attempts) == ("running", 1), "silence ends nothing"
    server = LocalSite(lab.state).server()
    assert server is not None
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(3 * LEASE_S)  # the span that this test is about: longer than every timeout
    os.kill(server.pid, signal.SIGCONT)
    victim.heal()
    until(lambda: lab.node(name).contact == "ok", "the host is back by itself")
    assert (lab.job(wide).state, lab.job(wide).attempts) == ("running", 1)
    end(lab).touch()
    until(lambda: all(lab.job(each).ended for each in (wide, fenced)), "both end")
    assert {lab.job(each).state for each in (wide, fenced)} == {"succeeded"}
    assert lab.open_nodes() == ["h1", "h2", "h3"]
    ledger = one_after_the_other(lab, wide, fenced)
    assert [each.cause for each in ledger.histories[wide].attempts] == ["completed"]
    causes = [each.cause for each in ledger.histories[fenced].attempts]
    assert (causes[0], causes[-1]) == ("fenced", "completed")


def test_a_host_killed_under_a_gang(lab: Lab) -> None:
    """The whole gang waits again, the first failure is named, and it runs to its end on what is left."""
    job = gang(lab, 2)
    until(lambda: lab.job(job).state == "running", "it runs")
    names = lab.job(job).node_names
    victim = next(host for host in lab.hosts if host.name == names[1])
    victim.hang()  # all at once, as a power cut: else its agent may live long enough to tell of the rank's death
    victim.kill()
    until(lambda: lab.node(victim.name).contact == "unreachable", "the host is silent")
    assert lab.job(job).attempts == 1, "a silent host may still run its share"
    victim.boot()
    until(lambda: lab.job(job).attempts == 2 and lab.job(job).state == "running", "all of it runs again")
    until(lambda: all(rows[-1][1] == 2 for rows in traces(lab).values()), "every rank of it writes")
    end(lab).touch()
    until(lambda: lab.job(job).ended, "it ends")
    ended = lab.job(job)
    assert (ended.state, ended.attempts) == ("succeeded", 2)
    first = ended.past[0]
    assert first.cause == "node_failed"
    assert victim.name in first.detail
    one_after_the_other(lab, job)
