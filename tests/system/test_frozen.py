"""A process that cannot be killed never frees its device; its node drains, and says why."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.wire import api_cluster
from tests import capabilities
from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster, pids_of
from tests.system.processes import alive, until
from tests.system.workload import Gate, Work, gang, single

pytestmark = [
    pytest.mark.system,
    pytest.mark.needs("root", "freezer"),
    pytest.mark.skipif(
        not Path("/sys/fs/cgroup/freezer").exists(), reason="control groups of version 2 end the frozen"
    ),
]

WATCH_S = 1.5  # for what must not happen


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process in a frozen control group; on leaving, thawed."""
    parent = capabilities.freezer_parent()
    assert parent is not None
    group = parent / f"gangline-test-{os.getpid()}-{pid}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        _set(group, frozen=True)
        until(lambda: _is_frozen(group), f"process {pid} is frozen")
        yield
    finally:
        _set(group, frozen=False)
        until(lambda: _removed(group), f"{group} is empty")


def _set(group: Path, *, frozen: bool) -> None:
    (group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")


def _is_frozen(group: Path) -> bool:
    return (group / "freezer.state").read_text().strip() == "FROZEN"


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def node(cluster: Cluster, name: str) -> api_cluster.Node:
    """The node as people see it."""
    return cluster.client.node(name)


def test_a_frozen_rank_keeps_its_device_and_drains_its_node(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(agent={"stuck_s": 0.5})
    gate: Gate = cluster.gate()
    job = cluster.submit("frozen", Work(gate=gate), gang(tasks=1, gpus=2), stop={"grace": "1s"})
    seen = cluster.running(job)
    assert seen.attempt is not None
    part = seen.attempt.parts[0]
    pid = part.pids[0]
    with frozen(pid):
        cluster.client.cancel(job)
        until(lambda: not node(cluster, "n1").open, "n1 drains")
        (mark,) = node(cluster, "n1").marks
        assert (mark.kind, mark.job) == ("draining", job)
        assert f"attempt {job}/1 can't be ended: SIGKILL has not ended {pid} (sh) state" in mark.why
        shown = cluster.gangline("nodes", "--server", cluster.url)
        assert "draining" in shown.stdout
        assert f"attempt {job}/1 can't be ended" in shown.stdout, shown
        until(lambda: cluster.client.node("n2").jobs == [], "the other node's part is gone")
        assert node(cluster, "n2").open
        fills_the_rest(cluster, job, part.slots)
        assert cluster.job(job).state == "ending"
        assert alive(pid)
    assert cluster.ended(job).state == "cancelled"
    assert not alive(pid)
    until(lambda: node(cluster, "n1").open, "n1 is open again")
    assert node(cluster, "n1").marks == []
    assert node(cluster, "n1").free_gpus == 8
    cluster.succeeded(cluster.submit("whole", Work(), gang(tasks=1, gpus=8)))
    cluster.finish()


def fills_the_rest(cluster: Cluster, job: int, slots: list[int]) -> None:
    """Work comes to the other node only; what needs n1 waits; the device stays the frozen job's."""
    for number in range(2):
        (beside,) = cluster.succeeded(cluster.submit(f"beside-{number}", Work(), single(4)))
        assert beside.node_names == ["n2"]
    waits = cluster.submit("waits", Work(), gang(tasks=1, gpus=8))
    until(lambda: cluster.job(waits).reason is not None, "the reason of what waits")
    time.sleep(WATCH_S)  # that nothing happens can only be seen by looking for a while
    assert cluster.job(waits).attempts == 0
    holders = {device.slot: device.job for device in node(cluster, "n1").devices}
    assert holders == {slot: job if slot in slots else None for slot in range(8)}
    cluster.client.cancel(waits)


def test_controller_and_agent_restarts_free_nothing_that_is_frozen(make_cluster: MakeCluster) -> None:
    """The proof survives both: who comes back finds the device taken, and frees it when the process is gone."""
    cluster = make_cluster(agent={"stuck_s": 0.5})
    job = cluster.submit("frozen", Work(gate=cluster.gate()), single(), stop={"grace": "0s"})
    seen = cluster.running(job)
    (name,) = seen.node_names
    with frozen(pids_of(seen)[0]):
        os.kill(cluster.agents[name].shepherd(job), 9)
        cluster.client.cancel(job)
        until(lambda: not node(cluster, name).open, f"{name} drains")
        cluster.agents[name].process.kill()
        cluster.controller.process.kill()
        cluster.agents[name].start()
        cluster.restart()
        cluster.succeeded(*(cluster.submit(f"beside-{k}", Work(), single(8)) for k in range(2)))
        assert [mark.kind for mark in node(cluster, name).marks] == ["draining"]
        assert node(cluster, name).jobs == [job]
    assert cluster.ended(job).state == "cancelled"
    until(lambda: node(cluster, name).open, f"{name} is open again")
    cluster.finish()
