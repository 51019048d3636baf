"""A change for which work must leave, over six hosts: batch by batch, with a gang that outlives the deadline and one
that must not be stopped. No job is lost, and never are fewer nodes open than promised."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed.bed import Bed
from tests.testbed.lab import USER, Lab, Watch, until

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
AWAY = 2  # of six
DEADLINE = "10s"


@pytest.fixture
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Six hosts, up; two may be away at once."""
    made = Lab(testbed, testbed.fresh(6, "12", "13"), tmp_path_factory.mktemp("lab"))
    made.pool["update"] = {"max_unavailable": AWAY, "drain": {"deadline": DEADLINE, "then": "requeue"}}
    made.write()
    try:
        made.up().ok()
        yield made
    finally:
        made.stop()


def gang(lab: Lab, seconds: int, name: str = "gang") -> int:
    """Two ranks on two whole nodes."""
    return lab.submit(
        {
            "apiVersion": "gangline/v1",
            "kind": "Job",
            "metadata": {"name": name},
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


def test_work_leaves_batch_by_batch_and_comes_back(lab: Lab) -> None:
    short, long = gang(lab, 4), gang(lab, 600)
    until(lambda: all(lab.job(each).state == "running" for each in (short, long)), "both run")
    lab.pool["labels"] = {"row": "3"}
    lab.spec["identity"]["min_uid"] = 2000
    lab.pool["fabric"] = {"kind": "roce"}
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
    assert lab.open_nodes() == [host.name for host in lab.hosts]
    assert lab.drift() == []


def test_work_that_must_not_be_stopped_stops_the_change(lab: Lab) -> None:
    lab.pool["update"]["drain"]["then"] = "wait"
    lab.write()
    lab.apply().ok()
    job = gang(lab, 600)
    until(lambda: lab.job(job).state == "running", "it runs")
    busy = set(lab.job(job).node_names)
    lab.pool["fabric"] = {"kind": "roce"}
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
    with lab.client() as client:
        client.cancel(job, now=True)
    until(lambda: lab.job(job).ended, "it has gone")
    lab.apply().ok()
    assert lab.plan().get("changes", []) == []
