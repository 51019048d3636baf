"""Agents, nurseries and shepherds killed while jobs run.

What runs is adopted, what ended meanwhile is told, nothing starts twice.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from orchestrator.agent import procfs
from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster, contacts, pids_of
from tests.system.members import Agent
from tests.system.processes import Held, alive, until
from tests.system.verify import check_one_attempt_each
from tests.system.workload import Work, gang, single

pytestmark = pytest.mark.system

KILLS = 24
SEED = 4
# How a node keeps a unit together: with control groups where it may make them, else by descent and marks.
supervisors = pytest.mark.parametrize(
    "supervisor", ["process-tree", pytest.param("cgroup2", marks=pytest.mark.needs("root"))]
)


def nursery_of(agent: Agent) -> int:
    """The process that forks the agent's workers."""

    def found() -> list[int]:
        children = [each for each in procfs.all_stats() if each.parent == agent.process.pid]
        return [each.pid for each in children if each.name == "gl-nursery"]

    return until(found, f"the nursery of {agent.name}")[0]


def renewed(agent: Agent, killed: int) -> None:
    """Wait until the agent has another one."""
    until(lambda: nursery_of(agent) != killed, f"another nursery of {agent.name}")


def end_recorded(agent: Agent, job: int) -> None:
    """Wait until the shepherd has written down the end, for an agent to read."""
    until(lambda: agent.records(job)[-1]["k"] == "ended", f"{agent.name}'s shepherd has recorded the end")


@supervisors
def test_agents_killed_at_random_under_load(make_cluster: MakeCluster, supervisor: str) -> None:
    """At any moment of their life, also while they adopt what the last one left."""
    cluster = make_cluster(nodes=3, agent={"supervisor": supervisor})
    dice = random.Random(SEED)
    gate = cluster.gate()
    steady = [cluster.submit(f"steady-{k}", Work(gate=gate), gang(tasks=1, gpus=1)) for k in range(3)]
    before = {job: pids_of(cluster.running(job)) for job in steady}
    jobs: list[int] = []
    for number in range(KILLS):
        shape = gang(tasks=1, gpus=1) if number % 3 else single(2)
        jobs.append(cluster.submit(f"job-{number}", Work(lines=30, pause="0.1"), shape))
        agent = cluster.agents[dice.choice(sorted(cluster.agents))]
        time.sleep(dice.uniform(0.0, 0.4))  # the random moment
        agent.process.kill()
        agent.start()
    for found in cluster.succeeded(*jobs):
        cluster.check_logs(found)
    assert {job: pids_of(cluster.job(job)) for job in steady} == before
    assert all(alive(pid) for pids in before.values() for pid in pids)
    gate.open()
    cluster.succeeded(*steady)
    check_one_attempt_each(cluster.finish())


def test_all_agents_killed_at_once_and_the_controller_too(cluster: Cluster) -> None:
    gate = cluster.gate()
    job = cluster.submit("job", Work(lines=20, gate=gate), gang())
    pids = pids_of(cluster.running(job))
    for child in (cluster.controller.process, *(agent.process for agent in cluster.agents.values())):
        child.kill()
    for agent in cluster.agents.values():
        agent.start()
    cluster.restart()
    cluster.succeeded(cluster.submit("after", Work(), gang()))
    assert pids_of(cluster.job(job)) == pids
    gate.open()
    cluster.check_logs(*cluster.succeeded(job))
    check_one_attempt_each(cluster.finish())


@pytest.mark.parametrize("code", [0, 3])
def test_what_ends_while_the_agent_is_dead_is_told_by_the_next(cluster: Cluster, code: int) -> None:
    gate = cluster.gate()
    job = cluster.submit("job", Work(lines=20, gate=gate, code=code), gang())
    ranks = Held(pids_of(cluster.running(job)))
    for agent in cluster.agents.values():
        agent.process.kill()
    gate.open()
    ranks.gone(10)
    ranks.close()
    for agent in cluster.agents.values():
        end_recorded(agent, job)
    assert cluster.job(job).state == "running"
    for agent in cluster.agents.values():
        agent.start()
    ended = cluster.ended(job)
    assert (ended.state, ended.exit_code) == (("failed", code) if code else ("succeeded", 0))
    cluster.check_logs(ended)
    check_one_attempt_each(cluster.finish())


def test_killed_nursery_takes_nothing_with_it(cluster: Cluster) -> None:
    """Its shepherds go on, and jobs that come while it is replaced start once."""
    gate = cluster.gate()
    job = cluster.submit("job", Work(gate=gate), gang())
    pids = pids_of(cluster.running(job))
    jobs: list[int] = []
    for turn in range(4):
        killed = {name: nursery_of(agent) for name, agent in cluster.agents.items()}
        jobs += [cluster.submit(f"early-{turn}-{k}", Work(), gang(tasks=1, gpus=1)) for k in range(2)]
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        jobs += [cluster.submit(f"late-{turn}-{k}", Work(), gang(tasks=1, gpus=1)) for k in range(2)]
        for name, agent in cluster.agents.items():
            renewed(agent, killed[name])
    for found in cluster.succeeded(*jobs):
        cluster.check_logs(found)
    assert pids_of(cluster.job(job)) == pids
    gate.open()
    cluster.succeeded(job)
    check_one_attempt_each(cluster.finish())


@supervisors
def test_an_agent_that_has_lost_its_journal_starts_nothing_twice(
    make_cluster: MakeCluster, supervisor: str
) -> None:
    """It finds processes that it knows nothing of, leaves them alone, and says when they are gone."""
    cluster = make_cluster(agent={"supervisor": supervisor})
    gate = cluster.gate()
    job = cluster.submit("job", Work(gate=gate), single(8))
    (name,) = cluster.running(job).node_names
    pids = pids_of(cluster.running(job))
    agent = cluster.agents[name]
    agent.process.kill()
    for lost in ("journal.jsonl", "started.ids", "history.jsonl"):
        (agent.state / lost).unlink(missing_ok=True)
    agent.start()
    until(lambda: "in no record" in agent.log_text(), "the agent tells of what it has found")
    cluster.succeeded(cluster.submit("beside", Work(), single(8)))
    assert all(alive(pid) for pid in pids)
    assert cluster.job(job).attempts == 1
    gate.open()
    (ended,) = cluster.succeeded(job)
    assert [past.cause for past in ended.past] == ["node_failed", "completed"]
    cluster.finish()


@supervisors
def test_killed_shepherd_ends_its_gang_and_counts_as_the_nodes_failure(
    make_cluster: MakeCluster, supervisor: str
) -> None:
    """Its ranks are ended on both nodes; the job is tried again, and not as one that failed by itself."""
    cluster = make_cluster(agent={"supervisor": supervisor})
    gate = cluster.gate()
    job = cluster.submit(
        "job", Work(lines=5, gate=gate), gang(), retries={"node_failure": 1, "job_failure": 0}
    )
    before = cluster.running(job)
    shepherd = cluster.agents["n1"].shepherd(job)
    ranks = Held(pids_of(before))
    os.kill(shepherd, signal.SIGKILL)
    ranks.gone(20)
    ranks.close()
    until(lambda: cluster.job(job).attempts == 2, "another attempt")
    assert not set(pids_of(cluster.running(job))) & set(pids_of(before))
    gate.open()
    (ended,) = cluster.succeeded(job)
    told = [(past.cause, past.detail) for past in ended.past]
    assert told == [("node_failed", "n1: the shepherd was killed"), ("completed", "")]
    cluster.check_logs(ended)
    ledger = cluster.finish()
    assert [each.retry_class for each in ledger.histories[job].attempts] == ["node_failure", ""]


def test_killed_shepherd_without_retries_fails_the_job(cluster: Cluster) -> None:
    gate = cluster.gate()
    job = cluster.submit("job", Work(gate=gate), single(), retries={"node_failure": 0, "job_failure": 5})
    node = cluster.running(job).node_names[0]
    os.kill(cluster.agents[node].shepherd(job), signal.SIGKILL)
    ended = cluster.ended(job)
    assert (ended.state, ended.attempts, ended.why) == ("failed", 1, f"{node}: the shepherd was killed")
    assert set(contacts(cluster).values()) == {"ok"}
    cluster.finish()
