"""Kills at every named step between intent, call and record, on the controller's, the agent's and the shepherd's side.

Whatever dies there: no job is lost, none doubled, every acknowledged submit ends, and nothing stays taken.
"""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from orchestrator.model.errors import Conflict
from orchestrator.model.failpoints import NAMES
from tests.system.harness import Cluster, retried
from tests.system.keeper import Keeper
from tests.system.processes import until
from tests.system.verify import check_one_attempt_each
from tests.system.workload import Work, gang, single

pytestmark = pytest.mark.system

DIED = -signal.SIGKILL
AT_THE_END = ("controller.snapshot.before", "controller.snapshot.after")  # a stop writes a snapshot
CONTROLLER_POINTS = [name for name in NAMES if name.startswith("controller.") and name not in AT_THE_END]
AGENT_POINTS = [name for name in NAMES if name.startswith("agent.")]
SHEPHERD_POINTS = [name for name in NAMES if name.startswith("shepherd.")]
PASSINGS = (1, 3)


def test_every_failpoint_is_driven_through() -> None:
    here = {*CONTROLLER_POINTS, *AT_THE_END, *AGENT_POINTS, *SHEPHERD_POINTS}
    elsewhere = ("apply.", "join.", "capacity.")  # tests/testbed, test_enrolment, test_elastic
    assert here == {name for name in NAMES if not name.startswith(elsewhere)}


def drive(cluster: Cluster) -> None:
    """Jobs and gangs that end by themselves, and gangs that are cancelled while they run."""
    gate = cluster.gate()
    endless = [cluster.submit(f"endless-{k}", Work(gate=gate), gang(tasks=1, gpus=1)) for k in range(3)]
    short: list[int] = []
    for k in range(3):
        short.append(cluster.submit(f"single-{k}", Work(), single(2)))
        short.append(cluster.submit(f"gang-{k}", Work(), gang()))
    for job in endless:
        cluster.started(job, ranks=2)
        cancel(cluster, job)
    for found in cluster.succeeded(*short):
        cluster.check_logs(found)
    assert {cluster.ended(job).state for job in endless} == {"cancelled"}


def cancel(cluster: Cluster, job: int) -> None:
    """Until the cancel, or the end that it led to, is acknowledged."""
    with suppress(Conflict):  # it has ended: the first cancel was taken, and its answer lost
        retried(lambda: cluster.client.cancel(job), f"the cancel of job {job}")


@pytest.mark.parametrize("passing", PASSINGS)
@pytest.mark.parametrize("point", CONTROLLER_POINTS)
def test_controller_killed_at(cluster: Cluster, point: str, passing: int) -> None:
    cluster.controller.process.kill()
    cluster.controller.start(f"{point}:{passing}")
    with Keeper(cluster) as keeper:
        drive(cluster)
    assert keeper.deaths == [("controller", DIED)], f"{point} was not passed {passing} times"
    check_one_attempt_each(cluster.finish())


@pytest.mark.parametrize("point", AT_THE_END)
def test_controller_killed_at_its_end(cluster: Cluster, point: str) -> None:
    cluster.controller.process.kill()
    cluster.controller.start(point).ready()
    drive(cluster)
    assert cluster.controller.process.stop() == DIED, f"{point} was not passed"
    cluster.restart()
    cluster.succeeded(cluster.submit("after"))
    check_one_attempt_each(cluster.finish())


@pytest.mark.parametrize("passing", PASSINGS)
@pytest.mark.parametrize("point", AGENT_POINTS)
def test_agent_killed_at(cluster: Cluster, point: str, passing: int) -> None:
    agent = cluster.agents["n1"]
    agent.process.kill()
    agent.start(f"{point}:{passing}")
    with Keeper(cluster) as keeper:
        drive(cluster)
    assert keeper.deaths == [("n1", DIED)], f"{point} was not passed {passing} times"
    check_one_attempt_each(cluster.finish())


@pytest.mark.parametrize("passing", [1, 2])
@pytest.mark.parametrize("point", SHEPHERD_POINTS)
def test_shepherd_killed_at(cluster: Cluster, point: str, passing: int) -> None:
    """Every shepherd of one nursery dies there, a reused one at its second attempt; each attempt is tried again."""
    agent = cluster.agents["n1"]
    agent.process.kill()
    agent.start(f"{point}:{passing}")
    jobs: list[int] = []

    def some_died() -> bool:
        if len(jobs) < 40:  # one after another, so that a shepherd serves several
            jobs.append(cluster.submit(f"gang-{len(jobs)}", Work(), gang(), retries={"node_failure": 1000}))
        until(lambda: cluster.job(jobs[-1]).past or cluster.job(jobs[-1]).ended, "an attempt is over")
        return any(past.cause == "node_failed" for job in jobs for past in cluster.job(job).past)

    until(some_died, f"{point} is passed {passing} times")
    agent.process.kill()
    agent.start()
    for found in cluster.succeeded(*jobs):
        cluster.check_logs(found)
    ledger = cluster.finish()
    killed = [
        each
        for history in ledger.histories.values()
        for each in history.attempts
        if each.cause != "completed"
    ]
    assert killed
    assert {(each.cause, each.detail, each.retry_class) for each in killed} == {
        ("node_failed", "n1: the shepherd was killed", "node_failure")
    }
