"""An old backup put back under running jobs: nothing is killed, nothing starts twice, and recovery takes all back."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from orchestrator.model.attempt import EndCause
from orchestrator.model.errors import Conflict
from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster, pids_of
from tests.system.keeper import Submitter
from tests.system.processes import alive, until
from tests.system.workload import Gate, Work, gang, single

pytestmark = pytest.mark.system

SEED = int(os.environ.get("GANGLINE_RESTORE_SEED") or 6)
KNOWN, NEW = 40, 30  # jobs that the backup knows, jobs that came after it
ENDED_KNOWN, ENDED_NEW = 12, 8  # of them, those that end before the restore
TAKEN_BACK = "taken back on the word of nodes"


class Running:
    """Jobs that wait at one of two gates: one opens before the restore, one at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.soon, self.late = cluster.gate(), cluster.gate()
        self.ended: list[int] = []
        self.staying: list[int] = []
        self.pids: dict[int, list[int]] = {}

    def start(self, prefix: str, count: int, soon: int) -> None:
        """So many jobs, every fifth a gang; the first `soon` of them end before the restore, some of those badly."""
        for number in range(count):
            shape = gang(tasks=1, gpus=1) if number % 5 == 4 else single()
            gate: Gate = self.soon if number < soon else self.late
            code = 3 if number < soon and number % 4 == 0 else 0
            job = self.cluster.submit(f"{prefix}-{number}", Work(gate=gate, code=code), shape)
            (self.ended if number < soon else self.staying).append(job)
        for job in [*self.ended, *self.staying]:
            if job not in self.pids:
                self.pids[job] = pids_of(self.cluster.running(job))

    def release(self, jobs: list[int]) -> None:
        """Let held jobs go; they stay until the end."""
        for job in jobs:
            self.cluster.client.release(job)
            self.pids[job] = pids_of(self.cluster.running(job))
        self.staying += jobs

    def undisturbed(self) -> None:
        """The very same processes run on, each started once."""
        assert all(alive(pid) for job in self.staying for pid in self.pids[job])
        traces = [
            trace for trace in self.cluster.traces() if trace.what == "start" and trace.job in self.pids
        ]
        starts = [(trace.job, trace.attempt, trace.rank) for trace in traces]
        assert len(starts) == len(set(starts)) == sum(map(len, self.pids.values()))


def restored(cluster: Cluster, backup: Path) -> None:
    """Kill the controller, put the backup in place, start it again."""
    cluster.controller.process.kill()
    done = cluster.gangline("server", "restore", str(backup), "--state", str(cluster.state))
    assert done.returncode == 0, done.stderr
    assert "recover" in done.stderr
    cluster.restart()


def test_an_old_backup_under_running_jobs(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=4, gpus=32)
    running = Running(cluster)
    held = [cluster.submit(f"held-{number}", Work(gate=running.late), hold=True) for number in range(3)]
    running.start("known", KNOWN, ENDED_KNOWN)
    backup = cluster.folder / "backup"
    done = cluster.gangline("server", "backup", str(backup), "--state", str(cluster.state))
    assert done.returncode == 0, done.stderr
    running.start("new", NEW, ENDED_NEW)
    running.release(held[:2])  # in the backup these wait for somebody to let them go
    running.soon.open()
    before = {job: cluster.ended(job) for job in running.ended}
    assert {job.state for job in before.values()} == {"succeeded", "failed"}
    new = [job for job in running.pids if cluster.job(job).name.startswith("new")]

    restored(cluster, backup)
    until(
        lambda: len({orphan.attempt for orphan in cluster.client.orphans()}) >= NEW + 2,
        "all orphans are listed",
    )
    assert cluster.client.status().recovering
    waits = cluster.submit("waits")
    assert waits > max(running.pids), "an id that a forgotten job has was given again"
    running.undisturbed()
    assert {orphan.attempt for orphan in cluster.client.orphans()} == {
        f"{job}/1" for job in [*new, *held[:2]]
    }
    assert cluster.job(waits).reason is not None
    assert cluster.job(waits).attempts == 0

    assert f"{new[0]}/1" in recovered_by_command(cluster)
    cluster.succeeded(waits)
    running.undisturbed()
    for job, seen in before.items():
        again = cluster.ended(job)
        assert (again.state, again.exit_code, again.attempts) == (seen.state, seen.exit_code, 1), job
    for job in running.staying:
        assert (cluster.job(job).state, cluster.job(job).attempts) == ("running", 1)
    assert cluster.job(held[2]).state == "held"
    cluster.client.release(held[2])
    running.late.open()
    cluster.succeeded(held[2])
    for found in cluster.succeeded(*running.staying):
        cluster.check_logs(found)
    ledger = cluster.finish()
    causes = {each.cause for history in ledger.histories.values() for each in history.attempts}
    assert causes == {EndCause.COMPLETED, EndCause.RANK_FAILED}


def test_a_backup_made_in_full_flow(make_cluster: MakeCluster) -> None:
    """Jobs everywhere between submit and end, at the backup and at the restore: nothing that ran is lost or doubled."""
    cluster = make_cluster(nodes=3)
    dice = random.Random(SEED)
    kinds = (
        (Work(lines=10), gang()),
        (Work(lines=20, pause="0.4"), single(2)),
        (Work(lines=10, pause="0.7"), gang(tasks=1, gpus=1)),
    )
    backup = cluster.folder / "backup"
    before: dict[str, int] = {}
    with Submitter(cluster) as submitter:
        for number in range(90):
            submitter.put(*kinds[number % len(kinds)])
            time.sleep(dice.uniform(0, 0.04))  # a steady flow
            if number == 45:
                before |= cluster.acknowledged
                done = cluster.gangline("server", "backup", str(backup), "--state", str(cluster.state))
                assert done.returncode == 0, done.stderr
        submitter.wait()
    restored(cluster, backup)
    until(cluster.client.orphans, "something is found that the backup does not know")
    until(lambda: recovered(cluster), "the running jobs are taken back")
    all_over(cluster)
    told = {job.name: job.id for job in cluster.client.jobs(states=["succeeded"])}
    assert before.items() <= told.items()
    ran = {trace.job for trace in cluster.traces()}
    assert ran <= set(told.values()), "a job that ran is not in the ledger"
    cluster.acknowledged = {
        name: job for name, job in cluster.acknowledged.items() if name in before or job in ran
    }
    cluster.finish()


def recovered_by_command(cluster: Cluster) -> str:
    """What `gangline server recover` prints, once every node has told what it holds."""

    def done() -> str:
        said = cluster.gangline("server", "recover", "--server", cluster.url)
        assert said.returncode == 0 or "recover.nodes-silent" in said.stderr, said
        return said.stdout

    return until(done, "all nodes have told")


def recovered(cluster: Cluster) -> bool:
    """Whether every node has told, and all that it holds was taken back."""
    try:
        done = cluster.client.recover()
    except Conflict as error:
        return error.code != "recover.nodes-silent"
    assert not done.left, done
    return True


def all_over(cluster: Cluster) -> None:
    """Wait until no job is left; AssertionError that says of each what keeps it.

    A gang that was just starting when its controller was killed is known to some of its nodes only, and is held for a
    person once it is taken back: that person is this function.
    """

    def over() -> bool:
        for job in cluster.client.jobs(states=["held"]):
            assert TAKEN_BACK in job.hold, job
            cluster.client.release(job.id)
        return not living(cluster)

    try:
        until(over, "all jobs are over")
    except AssertionError as error:
        jobs = cluster.client.jobs(states=["waiting", "starting", "running", "ending", "held"])
        kept = [f"{job}: {cluster.client.explain(job.id)}" for job in jobs]
        raise AssertionError("\n".join([str(error), *kept])) from None


def living(cluster: Cluster) -> int:
    """Jobs that are not over."""
    counts = cluster.client.status().jobs
    return counts.waiting + counts.starting + counts.running + counts.ending + counts.held
