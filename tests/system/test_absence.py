"""A controller that is away for longer than leases last, stopped or dead: no job dies of it, no node counts as lost."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime

import pytest

from orchestrator.controller.settings import Settings
from orchestrator.ledger import events
from orchestrator.model.node import Contact
from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster, contacts, pids_of
from tests.system.processes import Held, alive, until
from tests.system.verify import Ledger
from tests.system.workload import Work, gang, single

pytestmark = pytest.mark.system

LEASE_S = 3
AWAY_S = 2 * LEASE_S + 1  # two leases of silence and a node is lost


def never_lost(ledger: Ledger) -> None:
    """No node was ever called unreachable."""
    told = [event.body for event in ledger.events if isinstance(event.body, events.NodeContact)]
    assert Contact.UNREACHABLE not in {body.contact for body in told}, told


def run_on(cluster: Cluster, pids: dict[int, list[int]]) -> None:
    """The same processes, and they end well."""
    cluster.succeeded(cluster.submit("after", Work(), gang()))
    assert {job: pids_of(cluster.job(job)) for job in pids} == pids
    cluster.gates[0].open()
    for job in cluster.succeeded(*pids):
        cluster.check_logs(job)


def test_idle_agents_are_heard_within_a_short_lease(make_cluster: MakeCluster) -> None:
    """They beat often enough for any lease that the controller is told to use."""
    cluster = make_cluster(settings=Settings(lease_s=LEASE_S))
    cluster.controller.process.stop()
    cluster.restart(cold=True)  # with --lease, as people give it
    time.sleep(AWAY_S)
    until(lambda: set(contacts(cluster).values()) == {"ok"}, "all nodes are in contact")
    never_lost(cluster.finish())


def test_a_stopped_controller(make_cluster: MakeCluster) -> None:
    """It hears nobody while it is stopped, which says nothing about them."""
    cluster = make_cluster(settings=Settings(lease_s=LEASE_S))
    gate = cluster.gate()
    job = cluster.submit("waits", Work(gate=gate), gang())
    pids = {job: pids_of(cluster.running(job))}
    cluster.controller.process.send(signal.SIGSTOP)
    time.sleep(AWAY_S)
    cluster.controller.process.send(signal.SIGCONT)
    run_on(cluster, pids)
    assert set(contacts(cluster).values()) == {"ok"}
    never_lost(cluster.finish())


def test_a_time_limit_that_runs_out_meanwhile(cluster: Cluster) -> None:
    """It ends the job when a controller is there again."""
    job = cluster.submit("limited", Work(gate=cluster.gate()), gang(), time_limit="5s", stop={"grace": "1s"})
    seen = cluster.running(job)
    ranks = Held(pids_of(seen))
    assert seen.attempt is not None
    limit = seen.attempt.deadline_at
    assert limit is not None
    cluster.controller.process.kill()
    until(lambda: datetime.now(UTC) > limit, "its time is up")
    assert all(alive(trace.pid) for trace in cluster.traces())
    cluster.restart()
    ranks.gone(30)
    ranks.close()
    ended = cluster.ended(job)
    assert (ended.state, ended.past[-1].cause) == ("failed", "time_limit")
    assert "time limit of 5 s" in ended.why
    cluster.finish()


def test_a_stopped_agent(make_cluster: MakeCluster) -> None:
    """A job that chose to end with its lease runs elsewhere, once its processes are dead; another waits for proof."""
    cluster = make_cluster(settings=Settings(lease_s=LEASE_S))
    gate = cluster.gate()
    fences = cluster.submit("fences", Work(gate=gate), single(4), on_lost="self_fence")
    (name,) = cluster.running(fences).node_names
    waits = cluster.submit("waits", Work(gate=gate), single(4))
    before = pids_of(cluster.running(waits))
    assert cluster.job(waits).node_names == [name], "both fit on one node, and best fit puts them there"
    ranks = Held(pids_of(cluster.job(fences)))
    cluster.agents[name].process.send(signal.SIGSTOP)
    ranks.gone(2 * LEASE_S)  # when the controller takes it for dead
    ranks.close()
    until(lambda: cluster.job(fences).attempts == 2, "the fenced job runs again")
    assert cluster.running(fences).node_names != [name]
    assert (cluster.job(waits).lost, cluster.job(waits).attempts) == (True, 1)
    assert contacts(cluster)[name] == "unreachable"
    cluster.agents[name].process.send(signal.SIGCONT)
    until(lambda: contacts(cluster)[name] == "ok", "the node is back")
    assert not cluster.job(waits).lost
    assert pids_of(cluster.job(waits)) == before
    gate.open()
    cluster.succeeded(fences, waits)
    ledger = cluster.finish()
    assert [each.cause for each in ledger.histories[fences].attempts] == ["fenced", "completed"]
    assert [each.cause for each in ledger.histories[waits].attempts] == ["completed"]


@pytest.mark.parametrize(("lease_s", "on_lost"), [(LEASE_S, "wait_for_proof"), (2 * LEASE_S, "self_fence")])
def test_a_dead_controller(make_cluster: MakeCluster, lease_s: int, on_lost: str) -> None:
    """Agents that are refused know it to be absent: not even a job that ends with its lease ends."""
    cluster = make_cluster(settings=Settings(lease_s=lease_s))
    job = cluster.submit("job", Work(gate=cluster.gate()), gang(), on_lost=on_lost)
    pids = {job: pids_of(cluster.running(job))}
    cluster.controller.process.kill()
    time.sleep(AWAY_S)
    cluster.restart()
    run_on(cluster, pids)
    until(lambda: set(contacts(cluster).values()) == {"ok"}, "all nodes are in contact")
    never_lost(cluster.finish())
