"""Changes over six hosts: `apply` killed with SIGKILL at each of its steps, then run again, and work that must leave.

A killed one converges, and does nothing twice. Where work must leave, batch by batch, there are a gang that outlives
the deadline and one that must not be stopped: no job is lost, and never are fewer nodes open than promised.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from orchestrator.model.apply import Outcome
from tests.testbed.bed import Bed
from tests.testbed.lab import USER, Lab, Watch, hostnames, until

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

# Where it dies, at the how-manieth passing. A change of a sysctl has the steps record, one host first, the others.
STEPS = 3
POINTS = [
    "apply.start.after:1",
    *(
        f"{point}:{step}"
        for step in range(1, STEPS + 1)
        for point in ("apply.step.started", "apply.step.acted")
    ),
    f"apply.step.ended:{STEPS}",
    "apply.end.before:1",
]
KILLED = -9
VALUES = itertools.count(4100)
KINDS = itertools.cycle(["roce", "infiniband"])  # of fabric: work leaves for each of them
AWAY = 2  # of six, in a rolling change
DEADLINE = "6s"


@pytest.fixture(scope="module")
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Six hosts, up."""
    made = Lab(testbed, testbed.fresh(6, "12", "13", furnished=True), tmp_path_factory.mktemp("lab"))
    try:
        made.up().ok()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_apply_is_run_again_and_goes_on(lab: Lab, point: str) -> None:
    value = str(next(VALUES))
    lab.site["system"] = {"sysctls": {"net.core.somaxconn": value}}
    lab.write()
    killed = lab.apply(env={"GANGLINE_FAILPOINT": point})
    assert killed.code == KILLED, killed

    status = lab.run("status").ok().out
    assert "steps done" in status, "people must see that something is pending"
    before = configured(lab, value)
    lab.apply().ok()

    with lab.client() as client:
        newest = client.applies()[0]
        again = {name for step in newest.steps if step.kind == "configure" for name in step.nodes}
    assert configured(lab, value) == set(hostnames(lab.hosts))
    if before and newest.outcome == "done":
        assert not again & before, "hosts that had it already were configured again"
    settled(lab)


def settled(lab: Lab) -> None:
    """The plan, which looks at every host as `drift` does, finds nothing; nothing is pending; every node is open."""
    plan = lab.plan()
    assert (plan.get("changes", []), plan.get("steps", [])) == ([], [])
    assert "apply " not in lab.run("status").ok().out
    assert lab.open_nodes() == hostnames(lab.hosts)


# A change for which work must leave: record, then cordon, drain, configure, accept, uncordon of each batch.
@pytest.mark.parametrize(
    "point",
    [f"apply.step.{at}" for at in ("acted:2", "acted:3", "started:4", "acted:4", "acted:5", "acted:6")],
)
def test_a_killed_rolling_change_gives_all_hosts_back(lab: Lab, point: str) -> None:
    """A host that the killed run had closed is neither forgotten nor opened before it is as wanted."""
    lab.pool["update"] = {"max_unavailable": 3}
    lab.pool["fabric"] = {"kind": next(KINDS)}
    lab.write()
    killed = lab.apply(env={"GANGLINE_FAILPOINT": point})
    assert killed.code == KILLED, killed
    assert "steps done" in lab.run("status").ok().out, "people must see that something is pending"
    assert len(lab.open_nodes()) >= 3

    with Watch(lab) as watch:
        lab.apply().ok()

    assert watch.least >= 3
    settled(lab)


def configured(lab: Lab, value: str) -> set[str]:
    """Hosts on which the sysctl has the value."""
    return {host.name for host in lab.hosts if host.inside("sysctl -n net.core.somaxconn").check() == value}


def test_two_at_once_do_not_meet(lab: Lab) -> None:
    """Of two applies of two people one waits its turn in words, and touches nothing."""
    lab.site["system"] = {"sysctls": {"net.core.somaxconn": str(next(VALUES))}}
    lab.write()
    with lab.client() as client:
        other = client.start_apply("bob@laptop", "digest", (), 60).id
        refused = lab.apply()
        assert refused.code == 1
        assert "bob@laptop" in refused.err
        client.end_apply(other, Outcome.DONE)
    lab.apply().ok()
    assert lab.drift() == []


# --- work that must leave --------------------------------------------------------------------------------------------


def rolls(lab: Lab, then: str) -> None:
    """From now on two may be away at once, and what outlives the drain has this fate."""
    lab.pool["update"] = {"max_unavailable": AWAY, "drain": {"deadline": DEADLINE, "then": then}}
    lab.write()
    lab.apply().ok()


def gang(lab: Lab, seconds: int) -> int:
    """Two ranks on two whole nodes."""
    return lab.submit(
        {
            "apiVersion": "gangline/v1",
            "kind": "Job",
            "metadata": {"name": "gang"},
            "spec": {
                "nodes": 2,
                "tasks_per_node": 1,
                "per_node": {"gpus": 8},
                "workdir": f"/home/{USER}",
                "stop": {"grace": "2s"},
                "command": ["sleep", str(seconds)],
            },
        }
    )


def gone(lab: Lab, job: int) -> None:
    """Cancelled, and no process of it is left."""
    with lab.client() as client:
        client.cancel(job, now=True)
    until(lambda: lab.job(job).ended, "it has gone")


def test_work_leaves_batch_by_batch_and_comes_back(lab: Lab) -> None:
    rolls(lab, "requeue")
    short, long = gang(lab, 4), gang(lab, 600)
    until(lambda: all(lab.job(each).state == "running" for each in (short, long)), "both run")
    lab.pool["labels"] = {"row": "3"}
    lab.spec["identity"]["min_uid"] = 2000
    lab.pool["fabric"] = {"kind": next(KINDS)}
    lab.write()
    plan = lab.plan()
    assert {change["cls"] for change in plan["changes"]} >= {"drain-and-reconfigure"}
    assert {(effect["job"], effect["fate"]) for effect in plan["work"]} >= {(long, "stopped")}
    with Watch(lab) as watch:
        lab.apply().ok()
    assert watch.least >= len(lab.hosts) - AWAY
    until(lambda: lab.job(short).ended, "the short one ends")
    assert (lab.job(short).state, lab.job(short).attempts) == ("succeeded", 1)
    until(lambda: lab.job(long).state == "running", "the long one runs again")
    assert lab.job(long).attempts >= 2
    assert lab.open_nodes() == hostnames(lab.hosts)
    assert lab.drift() == []
    gone(lab, long)


def test_work_that_must_not_be_stopped_stops_the_change(lab: Lab) -> None:
    rolls(lab, "wait")
    job = gang(lab, 600)
    until(lambda: lab.job(job).state == "running", "it runs")
    busy = set(lab.job(job).node_names)
    lab.pool["fabric"] = {"kind": next(KINDS)}
    lab.write()
    plan = lab.plan()
    assert ("blocks", job) in {(effect["fate"], effect["job"]) for effect in plan["work"]}
    with Watch(lab) as watch:
        done = lab.apply()
    assert done.code == 4, done
    assert f"job(s) {job} outlived the drain's deadline" in done.err
    assert watch.least >= len(lab.hosts) - AWAY
    assert (lab.job(job).state, lab.job(job).attempts) == ("running", 1)
    assert set(lab.job(job).node_names) == busy
    until(lambda: len(lab.open_nodes()) == len(lab.hosts), "every node is open again")
    gone(lab, job)
    lab.apply().ok()
    assert lab.plan().get("changes", []) == []
